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

/* `number` is a constant where these are called. */
INLINE vec load_number(const void *from, i64 i, i32 number) {
    if (number == FP32) return load((const float *)from + i);
    short_vec bits = *(const loose_short_vec *)((const u16 *)from + i);
    return number == FP16 ? from_half(bits) : from_brain(bits);
}
INLINE void store_number(void *to, i64 i, vec v, i32 number) {
    if (number == FP32) store((float *)to + i, v);
    else *(loose_short_vec *)((u16 *)to + i) = number == FP16 ? to_half(v) : to_brain(v);
}

INLINE i64 number_bytes(i32 number) { return number == FP32 ? 4 : 2; }
INLINE void copy_numbers(char *to, const char *from, i64 count, i32 number) {
    for (i64 i = 0; i < count * number_bytes(number); i++) to[i] = from[i];
}

enum { WIRE_NUMBERS = 16 * 1024 }; /* in a tile */

/* Numbers start .. end; the last few pass through local vectors, so that nothing behind them is touched. */
INLINE void wire_run(void *to, i32 number_to, const void *from, i32 number_from, i32 add, i64 start, i64 end) {
    i64 i = start;
    for (; i + LANES <= end; i += LANES) {
        vec v = load_number(from, i, number_from);
        store_number(to, i, add ? load_number(to, i, number_to) + v : v, number_to);
    }
    if (i == end) return;
    char local_from[LANES * 4] = {0}, local_to[LANES * 4] = {0};
    char *tail = (char *)to + i * number_bytes(number_to);
    copy_numbers(local_from, (const char *)from + i * number_bytes(number_from), end - i, number_from);
    copy_numbers(local_to, tail, end - i, number_to);
    vec v = load_number(local_from, 0, number_from);
    store_number(local_to, 0, add ? load_number(local_to, 0, number_to) + v : v, number_to);
    copy_numbers(tail, local_to, end - i, number_to);
}

/* One copy of the loop for each pair of formats. */
INLINE void wire_tile(void *to, i32 number_to, const void *from, i32 number_from, i32 add, i64 start, i64 end) {
#define PAIR(t, f) \
    case (t) * 3 + (f): wire_run(to, t, from, f, add, start, end); break
    switch (number_to * 3 + number_from) {
        PAIR(FP32, FP32);
        PAIR(FP32, FP16);
        PAIR(FP32, BF16);
        PAIR(FP16, FP32);
        PAIR(FP16, FP16);
        PAIR(FP16, BF16);
        PAIR(BF16, FP32);
        PAIR(BF16, FP16);
        PAIR(BF16, BF16);
    }
#undef PAIR
}

static void run_convert(worker *w, const void *p) {
    const convert *op = p;
    for (i64 i; (i = take(w) * WIRE_NUMBERS) < op->count;)
        wire_tile(op->to, op->number_to, op->from, op->number_from, 0, i, MIN(op->count, i + WIRE_NUMBERS));
}

static i64 workspace_convert(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_reduce(worker *w, const void *p) {
    const reduce *op = p;
    for (i64 i; (i = take(w) * WIRE_NUMBERS) < op->count;)
        wire_tile(op->to, op->number_to, op->from, op->number_from, 1, i, MIN(op->count, i + WIRE_NUMBERS));
}

static i64 workspace_reduce(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
