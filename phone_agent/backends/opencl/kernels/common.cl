/* What all kernels share. Comes before each of them, so a file of kernels is never compiled alone.
 *
 * Activations are rows of channels, one row a pixel, as in the core (core.h); a tensor comes as `global T *buffer, long
 * offset`, and its `ld`. What an operand is stored as (float or half) is a definition of the program: half needs no
 * extension, as it is only ever loaded and stored. All arithmetic is in float; no double, which phones' GPUs lack. */

#define ACT_NONE 0
#define ACT_RELU 1
#define ACT_RELU6 2

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

/* LOAD(T, pointer, index): one number; LOAD4: four in a row, at any index. */
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define LOAD(T, p, i) JOINED(load_, T)(p, i)
#define LOAD4(T, p, i) JOINED(load4_, T)(p, i)
#define STORE(T, p, i, v) JOINED(store_, T)(p, i, v)
#define STORE4(T, p, i, v) JOINED(store4_, T)(p, i, v)

static inline float load_float(global const float *p, int i) { return p[i]; }
static inline float load_half(global const half *p, int i) { return vload_half(i, p); }
static inline float4 load4_float(global const float *p, int i) { return vload4(0, p + i); }
static inline float4 load4_half(global const half *p, int i) { return vload_half4(0, p + i); }
static inline void store_float(global float *p, int i, float v) { p[i] = v; }
static inline void store_half(global half *p, int i, float v) { vstore_half(v, i, p); }
static inline void store4_float(global float *p, int i, float4 v) { vstore4(v, 0, p + i); }
static inline void store4_half(global half *p, int i, float4 v) { vstore_half4(v, 0, p + i); }

/* NaN stays NaN: a diverged run must show. */
static inline float activate(float v, int act) {
    if (act == ACT_NONE) return v;
    v = 0 > v ? 0 : v;
    return act == ACT_RELU6 && 6 < v ? 6 : v;
}
static inline float4 activate4(float4 v, int act) {
    if (act == ACT_NONE) return v;
    v = select(v, (float4)0, (float4)0 > v);
    return act == ACT_RELU6 ? select(v, (float4)6, (float4)6 < v) : v;
}

/* g where the activation that gave y passes gradients, else 0. */
static inline float passed(float g, float y, int act) {
    if (act == ACT_NONE) return g;
    return y > 0 && (act == ACT_RELU || y < 6) ? g : 0;
}
static inline float4 passed4(float4 g, float4 y, int act) {
    if (act == ACT_NONE) return g;
    g = select((float4)0, g, y > (float4)0);
    return act == ACT_RELU6 ? select((float4)0, g, y < (float4)6) : g;
}

/* A stored number as the source's readers see it: channel c, which has a scale and a shift where `scaled`. */
static inline float see(float v, int scaled, global const float *scale, global const float *shift, int c, int act) {
    return scaled ? activate(v * scale[c] + shift[c], act) : v;
}
static inline float4 see4(float4 v, int scaled, global const float *scale, global const float *shift, int c, int act) {
    return scaled ? activate4(v * vload4(0, scale + c) + vload4(0, shift + c), act) : v;
}

/* A source among a kernel's parameters (launches/operands.py gives the arguments), opened in its first lines; then
 * SEE(T, x, row, c) is what its readers see. x_scaled is 0 where nothing is to be applied. */
#define SOURCE(T, x)                                                                                              \
    global const T *x##_buffer, long x##_at, global const float *x##_scale_buffer, long x##_scale_at,              \
        global const float *x##_shift_buffer, long x##_shift_at, int x##_ld, int x##_scaled, int x##_act
#define OPEN_SOURCE(T, x)                                                                                         \
    global const T *x = x##_buffer + x##_at;                                                                       \
    global const float *x##_scale = x##_scale_buffer + x##_scale_at, *x##_shift = x##_shift_buffer + x##_shift_at
#define SEE(T, x, row, c) see(LOAD(T, x, (row) * x##_ld + (c)), x##_scaled, x##_scale, x##_shift, c, x##_act)

/* A sink: where a gradient goes (core.h). `dx_y` is stored as T; where dx_normed it is z, before its normalisation.
 * SINK_MASKED: g, which holds what was there already, after the derivative of the activation that comes first. */
#define SINK(T, dx)                                                                                               \
    global float *dx##_buffer, long dx##_at, global const T *dx##_y_buffer, long dx##_y_at,                        \
        global const float *dx##_scale_buffer, long dx##_scale_at, global const float *dx##_shift_buffer,          \
        long dx##_shift_at, int dx##_ld, int dx##_ld_y, int dx##_act, int dx##_accumulate, int dx##_normed
#define OPEN_SINK(T, dx)                                                                                          \
    global float *dx = dx##_buffer + dx##_at;                                                                      \
    global const T *dx##_y = dx##_y_buffer + dx##_y_at;                                                            \
    global const float *dx##_scale = dx##_scale_buffer + dx##_scale_at, *dx##_shift = dx##_shift_buffer + dx##_shift_at
#define SINK_MASKED(T, dx, g, row, c)                                                                             \
    (dx##_act == ACT_NONE                                                                                          \
         ? (g)                                                                                                     \
         : passed(g, see(LOAD(T, dx##_y, (row) * dx##_ld_y + (c)), dx##_normed, dx##_scale, dx##_shift, c, ACT_NONE), \
                  dx##_act))
/* The whole of it for one element, but for a normalisation's sums: launches/sums.py has a pass for those. */
#define SINK_PUT(T, dx, g, row, c)                                                                                \
    do {                                                                                                           \
        int at_ = (row) * dx##_ld + (c);                                                                           \
        float g_ = (g) + (dx##_accumulate ? dx[at_] : 0);                                                          \
        dx[at_] = SINK_MASKED(T, dx, g_, row, c);                                                                  \
    } while (0)

/* --- vectors of WIDTH numbers, where a program defines that ---------------------------------------------------- */
#ifdef WIDTH
#define VEC JOINED(float, WIDTH)

static inline VEC loadv_float(global const float *p) { return JOINED(vload, WIDTH)(0, p); }
static inline VEC loadv_half(global const half *p) { return JOINED(vload_half, WIDTH)(0, p); }
static inline void storev_float(global float *p, VEC v) { JOINED(vstore, WIDTH)(v, 0, p); }
static inline void storev_half(global half *p, VEC v) { JOINED(vstore_half, WIDTH)(v, 0, p); }
#define LOADV(T, p) JOINED(loadv_, T)(p)
#define STOREV(T, p, v) JOINED(storev_, T)(p, v)

/* The first `count` of a vector's worth; zeros after. */
#define SOME(T)                                                                                                    \
    static inline VEC load_some_##T(global const T *p, int count) {                                                \
        float some[WIDTH];                                                                                         \
        JOINED(vstore, WIDTH)((VEC)0, 0, some);                                                                    \
        _Pragma("nounroll") for (int e = 0; e < count; e++) some[e] = LOAD(T, p, e);                               \
        return JOINED(vload, WIDTH)(0, some);                                                                      \
    }                                                                                                              \
    static inline void store_some_##T(global T *p, int count, VEC v) {                                             \
        float some[WIDTH];                                                                                         \
        JOINED(vstore, WIDTH)(v, 0, some);                                                                         \
        _Pragma("nounroll") for (int e = 0; e < count; e++) STORE(T, p, e, some[e]);                               \
    }
SOME(float)
SOME(half)
/* LOADN, STOREN: `count` numbers, where that may be less than a vector. Without TAIL it never is. */
#if TAIL
#define LOADN(T, p, count) ((count) >= WIDTH ? LOADV(T, p) : JOINED(load_some_, T)(p, count))
#define STOREN(T, p, count, v) ((count) >= WIDTH ? STOREV(T, p, v) : JOINED(store_some_, T)(p, count, v))
#else
#define LOADN(T, p, count) LOADV(T, p)
#define STOREN(T, p, count, v) STOREV(T, p, v)
#endif

static inline VEC activate_v(VEC v, int act) {
    if (act == ACT_NONE) return v;
    v = select(v, (VEC)0, (VEC)0 > v);
    return act == ACT_RELU6 ? select(v, (VEC)6, (VEC)6 < v) : v;
}
static inline VEC passed_v(VEC g, VEC y, int act) {
    if (act == ACT_NONE) return g;
    g = select((VEC)0, g, y > (VEC)0);
    return act == ACT_RELU6 ? select((VEC)0, g, y < (VEC)6) : g;
}
#endif
