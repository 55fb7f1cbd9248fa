/* Shared by all kernels. It is prepended to each file, so a kernel file is never compiled alone.
 *
 * Activations are NHWC, one row of channels per pixel, as in the core (core.h). A tensor is passed as `global T
 * *buffer, long offset` and its `ld`. Its storage type T (float or half) is a macro of the program; half needs no
 * extension, because it is only loaded and stored. All arithmetic is in float; there is no double, which phone GPUs
 * lack. */

#define ACT_NONE 0
#define ACT_RELU 1
#define ACT_RELU6 2

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

/* LOAD(T, pointer, index): one element; LOAD4: four consecutive elements, at any index. */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define LOAD(T, p, i) PASTE(load_, T)(p, i)
#define LOAD4(T, p, i) PASTE(load4_, T)(p, i)
#define STORE(T, p, i, v) PASTE(store_, T)(p, i, v)
#define STORE4(T, p, i, v) PASTE(store4_, T)(p, i, v)

static inline float load_float(global const float *p, int i) { return p[i]; }
static inline float load_half(global const half *p, int i) { return vload_half(i, p); }
static inline float4 load4_float(global const float *p, int i) { return vload4(0, p + i); }
static inline float4 load4_half(global const half *p, int i) { return vload_half4(0, p + i); }
static inline void store_float(global float *p, int i, float v) { p[i] = v; }
static inline void store_half(global half *p, int i, float v) { vstore_half(v, i, p); }
static inline void store4_float(global float *p, int i, float4 v) { vstore4(v, 0, p + i); }
static inline void store4_half(global half *p, int i, float4 v) { vstore_half4(v, 0, p + i); }

/* NaN stays NaN, so that a diverged run is noticed. */
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

/* The gradient behind an activation: g where the activation with output y passes gradients, otherwise 0. */
static inline float activation_backward(float g, float y, int act) {
    if (act == ACT_NONE) return g;
    return y > 0 && (act == ACT_RELU || y < 6) ? g : 0;
}
static inline float4 activation_backward4(float4 g, float4 y, int act) {
    if (act == ACT_NONE) return g;
    g = select((float4)0, g, y > (float4)0);
    return act == ACT_RELU6 ? select((float4)0, g, y < (float4)6) : g;
}

/* The fused operation of an input tensor, for channel c: act(scale * v + shift) if `has_affine`. */
static inline float apply_affine(float v, int has_affine, global const float *scale, global const float *shift, int c,
                                 int act) {
    return has_affine ? activate(v * scale[c] + shift[c], act) : v;
}
static inline float4 apply_affine4(float4 v, int has_affine, global const float *scale, global const float *shift,
                                   int c, int act) {
    return has_affine ? activate4(v * vload4(0, scale + c) + vload4(0, shift + c), act) : v;
}

/* The parameters of an input tensor with a fused operation (launches/operands.py passes the arguments). A kernel
 * opens it in its first lines; then LOAD_INPUT(T, x, row, c) loads an element. x_has_affine is 0 if there is no
 * fused operation. */
#define INPUT(T, x) \
    global const T *x##_buffer, long x##_at, global const float *x##_scale_buffer, long x##_scale_at, \
        global const float *x##_shift_buffer, long x##_shift_at, int x##_ld, int x##_has_affine, int x##_act
#define OPEN_INPUT(T, x) \
    global const T *x = x##_buffer + x##_at; \
    global const float *x##_scale = x##_scale_buffer + x##_scale_at, *x##_shift = x##_shift_buffer + x##_shift_at
#define LOAD_INPUT(T, x, row, c) \
    apply_affine(LOAD(T, x, (row) * x##_ld + (c)), x##_has_affine, x##_scale, x##_shift, c, x##_act)

/* The parameters of a gradient destination (fused_gradient in core.h). `dx_y` is stored as T; if dx_has_norm is set,
 * it is z, the input of the normalization. GRADIENT_BEHIND_ACTIVATION: g, already accumulated, times the derivative
 * of the preceding activation. */
#define GRADIENT(T, dx) \
    global float *dx##_buffer, long dx##_at, global const T *dx##_y_buffer, long dx##_y_at, \
        global const float *dx##_scale_buffer, long dx##_scale_at, global const float *dx##_shift_buffer, \
        long dx##_shift_at, int dx##_ld, int dx##_ld_y, int dx##_act, int dx##_accumulate, int dx##_has_norm
#define OPEN_GRADIENT(T, dx) \
    global float *dx = dx##_buffer + dx##_at; \
    global const T *dx##_y = dx##_y_buffer + dx##_y_at; \
    global const float *dx##_scale = dx##_scale_buffer + dx##_scale_at, *dx##_shift = dx##_shift_buffer + dx##_shift_at
#define GRADIENT_BEHIND_ACTIVATION(T, dx, g, row, c) \
    (dx##_act == ACT_NONE ? (g) \
                          : activation_backward(g, \
                                                apply_affine(LOAD(T, dx##_y, (row) * dx##_ld_y + (c)), dx##_has_norm, \
                                                             dx##_scale, dx##_shift, c, ACT_NONE), \
                                                dx##_act))
/* Store one element, without the sums of a normalization: launches/partial_sums.py has a separate pass for those. */
#define STORE_GRADIENT(T, dx, g, row, c) \
    do { \
        int at_ = (row) * dx##_ld + (c); \
        float g_ = (g) + (dx##_accumulate ? dx[at_] : 0); \
        dx[at_] = GRADIENT_BEHIND_ACTIVATION(T, dx, g_, row, c); \
    } while (0)

/* ---- vectors of WIDTH elements, if the program defines WIDTH ---- */
#ifdef WIDTH
#define VEC PASTE(float, WIDTH)

static inline VEC loadv_float(global const float *p) { return PASTE(vload, WIDTH)(0, p); }
static inline VEC loadv_half(global const half *p) { return PASTE(vload_half, WIDTH)(0, p); }
static inline void storev_float(global float *p, VEC v) { PASTE(vstore, WIDTH)(v, 0, p); }
static inline void storev_half(global half *p, VEC v) { PASTE(vstore_half, WIDTH)(v, 0, p); }
#define LOADV(T, p) PASTE(loadv_, T)(p)
#define STOREV(T, p, v) PASTE(storev_, T)(p, v)

/* Load or store the first `count` elements of a vector; the others are zero. */
#define DEFINE_PARTIAL(T) \
    static inline VEC load_partial_##T(global const T *p, int count) { \
        float values[WIDTH]; \
        PASTE(vstore, WIDTH)((VEC)0, 0, values); \
        _Pragma("nounroll") for (int e = 0; e < count; e++) values[e] = LOAD(T, p, e); \
        return PASTE(vload, WIDTH)(0, values); \
    } \
    static inline void store_partial_##T(global T *p, int count, VEC v) { \
        float values[WIDTH]; \
        PASTE(vstore, WIDTH)(v, 0, values); \
        _Pragma("nounroll") for (int e = 0; e < count; e++) STORE(T, p, e, values[e]); \
    }
DEFINE_PARTIAL(float)
DEFINE_PARTIAL(half)
/* LOADN, STOREN: `count` elements, which may be fewer than a vector if TAIL is set. */
#if TAIL
#define LOADN(T, p, count) ((count) >= WIDTH ? LOADV(T, p) : PASTE(load_partial_, T)(p, count))
#define STOREN(T, p, count, v) ((count) >= WIDTH ? STOREV(T, p, v) : PASTE(store_partial_, T)(p, count, v))
#else
#define LOADN(T, p, count) LOADV(T, p)
#define STOREN(T, p, count, v) STOREV(T, p, v)
#endif

static inline VEC activate_v(VEC v, int act) {
    if (act == ACT_NONE) return v;
    v = select(v, (VEC)0, (VEC)0 > v);
    return act == ACT_RELU6 ? select(v, (VEC)6, (VEC)6 < v) : v;
}
static inline VEC activation_backward_v(VEC g, VEC y, int act) {
    if (act == ACT_NONE) return g;
    g = select((VEC)0, g, y > (VEC)0);
    return act == ACT_RELU6 ? select((VEC)0, g, y < (VEC)6) : g;
}
#endif
