/* Numbers on the wire: between fp32, fp16 and bf16, rounded to the nearest, ties to even. Sums are always in fp32. */

typedef u16 short_vec __attribute__((ext_vector_type(LANES)));
typedef u16 loose_short_vec __attribute__((ext_vector_type(LANES), aligned(2)));

INLINE vec bits_as_floats(uvec bits) { return __builtin_bit_cast(vec, bits); }
INLINE uvec floats_as_bits(vec v) { return __builtin_bit_cast(uvec, v); }

#if defined(__F16C__) || defined(__aarch64__)
typedef _Float16 half_vec __attribute__((ext_vector_type(LANES)));

INLINE vec from_half(short_vec h) { return __builtin_convertvector(__builtin_bit_cast(half_vec, h), vec); }
INLINE short_vec to_half(vec v) { return __builtin_bit_cast(short_vec, __builtin_convertvector(v, half_vec)); }
#else
/* By hand, in the integer unit. Denormals come out right because a float subtraction or addition aligns their bits. */
INLINE vec from_half(short_vec h) {
    uvec bits = __builtin_convertvector(h, uvec), sign = (bits & 0x8000u) << 16, rest = (bits & 0x7FFFu) << 13;
    uvec normal = rest + (112u << 23);
    uvec denormal = floats_as_bits(bits_as_floats(rest + (113u << 23)) - bits_as_floats((uvec)(113u << 23)));
    uvec special = (rest + (224u << 23)) | ((rest & 0x7FFFFFu) != 0 ? (uvec)(1u << 22) : (uvec)0);
    uvec exponent = rest >> 23;
    return bits_as_floats(sign | (exponent == 0 ? denormal : exponent == 31 ? special : normal));
}
INLINE short_vec to_half(vec v) {
    uvec bits = floats_as_bits(v), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    uvec odd = size >> 13 & 1u;
    uvec normal = (size - (112u << 23) + 0xFFFu + odd) >> 13;
    /* 0.5 has the ulp of fp16's denormals as its last bit: the addition rounds there. */
    uvec denormal = floats_as_bits(bits_as_floats(size) + 0.5f) - floats_as_bits((vec)0.5f);
    uvec nan = 0x7E00u | (size >> 13 & 0x3FFu);
    uvec finite = size < 113u << 23 ? denormal : size >= 0x477FF000u ? (uvec)0x7C00u : normal;
    return __builtin_convertvector(sign | (size > 0x7F800000u ? nan : finite), short_vec);
}
#endif

INLINE vec from_brain(short_vec b) { return bits_as_floats(__builtin_convertvector(b, uvec) << 16); }
INLINE short_vec to_brain(vec v) {
    uvec bits = floats_as_bits(v), rounded = bits + 0x7FFFu + (bits >> 16 & 1u), nan = bits | 0x400000u;
    return __builtin_convertvector(((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded) >> 16, short_vec);
}

/* `count` numbers as floats in `local`, and back. `local` has room for whole vectors; nothing behind the last number
 * is touched. */
#define FOR_VECTORS(count) for (i32 c = 0, lanes; lanes = MIN(LANES, (count) - c), c < (count); c += LANES)

INLINE vec load_floats(const float *from, i32 lanes) {
    fetch_ahead(from);
    return load_lanes(from, lanes);
}
INLINE void store_floats(float *to, vec v, i32 lanes) {
    fetch_ahead(to);
    store_lanes(to, v, lanes);
}
INLINE short_vec load_shorts(const u16 *from, i32 lanes) {
    fetch_ahead(from);
    if (lanes == LANES) return *(const loose_short_vec *)from;
    short_vec v = 0;
    for (i32 i = 0; i < lanes; i++) v[i] = from[i];
    return v;
}
INLINE void store_shorts(u16 *to, short_vec v, i32 lanes) {
    fetch_ahead(to);
    if (lanes == LANES) *(loose_short_vec *)to = v;
    else
        for (i32 i = 0; i < lanes; i++) to[i] = v[i];
}

static NOINLINE void unpack(const void *from, i64 start, i32 count, i32 number, float *local) {
    const float *floats = (const float *)from + start;
    const u16 *shorts = (const u16 *)from + start;
    if (number == FP32) {
        FOR_VECTORS(count) store(local + c, load_floats(floats + c, lanes));
    } else if (number == FP16) {
        FOR_VECTORS(count) store(local + c, from_half(load_shorts(shorts + c, lanes)));
    } else {
        FOR_VECTORS(count) store(local + c, from_brain(load_shorts(shorts + c, lanes)));
    }
}

static NOINLINE void pack(const float *local, i32 count, i32 number, void *to, i64 start) {
    float *floats = (float *)to + start;
    u16 *shorts = (u16 *)to + start;
    if (number == FP32) {
        FOR_VECTORS(count) store_floats(floats + c, load(local + c), lanes);
    } else if (number == FP16) {
        FOR_VECTORS(count) store_shorts(shorts + c, to_half(load(local + c)), lanes);
    } else {
        FOR_VECTORS(count) store_shorts(shorts + c, to_brain(load(local + c)), lanes);
    }
}

enum { WIRE_TILE = 16 * 1024, WIRE_BLOCK = 512 }; /* numbers: to hand out; to hold in the nearest cache */

static void run_convert(worker *w, const void *p) {
    const convert *op = p;
    float local[WIRE_BLOCK];
    for (i64 i; (i = take(w) * WIRE_TILE) < op->count;)
        for (i64 end = MIN(op->count, i + WIRE_TILE); i < end; i += WIRE_BLOCK) {
            i32 count = (i32)MIN(WIRE_BLOCK, end - i);
            unpack(op->from, i, count, op->number_from, local);
            pack(local, count, op->number_to, op->to, i);
        }
}

static i64 workspace_convert(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_reduce(worker *w, const void *p) {
    const reduce *op = p;
    float local[WIRE_BLOCK], added[WIRE_BLOCK];
    for (i64 i; (i = take(w) * WIRE_TILE) < op->count;)
        for (i64 end = MIN(op->count, i + WIRE_TILE); i < end; i += WIRE_BLOCK) {
            i32 count = (i32)MIN(WIRE_BLOCK, end - i);
            unpack(op->to, i, count, op->number_to, local);
            unpack(op->from, i, count, op->number_from, added);
            for (i32 c = 0; c < count; c += LANES) store(local + c, load(local + c) + load(added + c));
            pack(local, count, op->number_to, op->to, i);
        }
}

static i64 workspace_reduce(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
