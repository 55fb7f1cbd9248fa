/* Wire formats. Values are rounded to nearest, ties to even; sums are always in fp32. Encoded bytes and residuals
 * are identical on every processor: no product below is fused with a sum in a way that changes the rounding, because
 * one factor is exact (a power of two) or the sign is attached in between.
 *
 * Values are encoded in blocks of WIRE_BLOCK; the last block may be shorter. In fp16 and int8 each block starts with
 * a float scale. fp16: a power of two that brings the largest value to 2^14 .. 2^15, so nothing overflows, and only
 * values 2^29 times smaller start to lose bits. int8: 1/127 of the largest absolute value, with sign and magnitude.
 * A block with a non-finite value has the scale NaN, so all of it is decoded as NaN and a diverged run is noticed. A
 * block whose largest value is below 2^-80 has the scale 0. bf16 has the range of fp32 and needs no scale. */

typedef u8 u8_vec __attribute__((ext_vector_type(LANES)));
typedef u8 unaligned_u8_vec __attribute__((ext_vector_type(LANES), aligned(1)));

INLINE vec bf16_to_fp32(u16_vec b) { return bits_as_floats(__builtin_convertvector(b, uvec) << 16); }
INLINE u16_vec fp32_to_bf16(vec v) {
    uvec bits = floats_as_bits(v), rounded = bits + 0x7FFFu + (bits >> 16 & 1u), nan = bits | 0x400000u;
    return __builtin_convertvector(((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded) >> 16, u16_vec);
}

enum { WIRE_BLOCK = 256, WIRE_TILE = 64 * WIRE_BLOCK, SCALE_BYTES = 4, SMALLEST_EXPONENT = 127 - 80 };

#define FOR_VECTORS(count) for (i32 c = 0, lanes; lanes = MIN(LANES, (count) - c), c < (count); c += LANES)

INLINE vec load_floats(const float *from, i32 lanes) {
    prefetch_page_ahead(from);
    return load_lanes(from, lanes);
}
INLINE void store_floats(float *to, vec v, i32 lanes) {
    prefetch_page_ahead(to);
    store_lanes(to, v, lanes);
}
INLINE u16_vec load_u16(const unaligned_u16 *from, i32 lanes) {
    prefetch_page_ahead(from);
    return load_u16_lanes(from, lanes);
}
INLINE void store_u16(unaligned_u16 *to, u16_vec v, i32 lanes) {
    prefetch_page_ahead(to);
    store_u16_lanes(to, v, lanes);
}
INLINE u8_vec load_bytes(const u8 *from, i32 lanes) {
    prefetch_page_ahead(from);
    if (lanes == LANES) return *(const unaligned_u8_vec *)from;
    u8_vec v = 0;
    for (i32 i = 0; i < lanes; i++) v[i] = from[i];
    return v;
}
INLINE void store_bytes(u8 *to, u8_vec v, i32 lanes) {
    prefetch_page_ahead(to);
    if (lanes == LANES) *(unaligned_u8_vec *)to = v;
    else
        for (i32 i = 0; i < lanes; i++) to[i] = v[i];
}

INLINE i32 scale_bytes(i32 dtype) { return dtype == FP16 || dtype == INT8 ? SCALE_BYTES : 0; }
INLINE i64 block_offset(i64 i, i32 dtype) {
    return i / WIRE_BLOCK * (scale_bytes(dtype) + WIRE_BLOCK * dtype_bytes(dtype));
}

INLINE float bits_as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
INLINE u32 float_as_bits(float x) { return __builtin_bit_cast(u32, x); }

/* The factors of encoding and decoding. */
typedef struct {
    float encode_scale, decode_scale;
} scaling;

/* From the bits of the block's largest absolute value. */
INLINE scaling scaling_for(u32 largest, i32 dtype) {
    u32 exponent = largest >> 23;
    if (dtype == FP32 || dtype == BF16) return (scaling){1, 1};
    if (exponent == 255) return (scaling){1, bits_as_float(0x7FC00000u)};
    if (exponent < SMALLEST_EXPONENT) return (scaling){0, 0};
    if (dtype == FP16) return (scaling){bits_as_float((268u - exponent) << 23), bits_as_float((exponent - 14u) << 23)};
    return (scaling){127 / bits_as_float(largest), bits_as_float(largest) / 127};
}

INLINE u8_vec fp32_to_int8(vec v) {
    uvec bits = floats_as_bits(v), size = bits & 0x7FFFFFFFu;
    uvec rounded = floats_as_bits(bits_as_floats(size) + 0x1p23f); /* where the last bit of a float is 1 */
    return __builtin_convertvector((bits >> 24 & 0x80u) | (rounded & 0x7Fu), u8_vec);
}
INLINE vec int8_to_fp32(u8_vec b, float scale) {
    uvec code = __builtin_convertvector(b, uvec), sign = (code & 0x80u) << 24;
    vec size = __builtin_convertvector(__builtin_convertvector(code & 0x7Fu, ivec), vec);
    return bits_as_floats(floats_as_bits(size * scale) | sign);
}

/* Elements from c on of a block whose elements start at `from`. */
INLINE vec decode_vector(const u8 *from, i32 c, i32 lanes, i32 dtype, float scale) {
    if (dtype == FP32) return load_floats((const float *)from + c, lanes);
    if (dtype == INT8) return int8_to_fp32(load_bytes(from + c, lanes), scale);
    u16_vec shorts = load_u16((const unaligned_u16 *)from + c, lanes);
    return dtype == FP16 ? fp16_to_fp32(shorts) * scale : bf16_to_fp32(shorts);
}

/* Returns the value that receivers will decode. */
INLINE vec encode_vector(u8 *to, i32 c, vec v, i32 lanes, i32 dtype, scaling s) {
    if (dtype == FP32) {
        store_floats((float *)to + c, v, lanes);
        return v;
    }
    if (dtype == INT8) {
        u8_vec bytes = fp32_to_int8(v * s.encode_scale);
        store_bytes(to + c, bytes, lanes);
        return int8_to_fp32(bytes, s.decode_scale);
    }
    u16_vec shorts = dtype == FP16 ? fp32_to_fp16(v * s.encode_scale) : fp32_to_bf16(v);
    store_u16((unaligned_u16 *)to + c, shorts, lanes);
    return dtype == FP16 ? fp16_to_fp32(shorts) * s.decode_scale : bf16_to_fp32(shorts);
}

INLINE float load_scale(const u8 *block, i32 dtype) {
    float scale = 1;
    if (scale_bytes(dtype)) __builtin_memcpy(&scale, block, SCALE_BYTES);
    return scale;
}

/* Writes the block's values to `sums`. Returns the bits of the largest absolute value; for NaN they exceed those of
 * all finite values. */
INLINE u32 sum_block(const encode *op, i64 start, i32 count, i32 dtype, float *sums) {
    const u8 *received = op->received ? (const u8 *)op->received + block_offset(start, dtype) : 0;
    float scale = received ? load_scale(received, dtype) : 1;
    uvec largest = 0;
    FOR_VECTORS (count) {
        vec v = load_floats(op->values + start + c, lanes);
        if (received) v += decode_vector(received + scale_bytes(dtype), c, lanes, dtype, scale);
        if (op->residual) v += load_floats(op->residual + start + c, lanes);
        store(sums + c, v);
        uvec size = floats_as_bits(v) & 0x7FFFFFFFu;
        largest = size > largest ? size : largest;
    }
    return __builtin_reduce_max(largest);
}

INLINE void encode_block(const encode *op, i64 start, i32 count, i32 dtype) {
    float sums[WIRE_BLOCK];
    scaling s = scaling_for(sum_block(op, start, count, dtype, sums), dtype);
    u8 *to = (u8 *)op->encoded + block_offset(start, dtype);
    if (scale_bytes(dtype)) __builtin_memcpy(to, &s.decode_scale, SCALE_BYTES);
    to += scale_bytes(dtype);
    FOR_VECTORS (count) {
        vec v = load(sums + c), rounded_value = encode_vector(to, c, v, lanes, dtype, s);
        if (op->residual) store_floats(op->residual + start + c, v - rounded_value, lanes);
        if (op->write_back) store_floats(op->values + start + c, rounded_value, lanes);
    }
}

INLINE void decode_block(const decode *op, i64 start, i32 count, i32 dtype) {
    const u8 *from = (const u8 *)op->encoded + block_offset(start, dtype);
    float scale = load_scale(from, dtype);
    FOR_VECTORS (count) {
        vec v = decode_vector(from + scale_bytes(dtype), c, lanes, dtype, scale);
        if (op->accumulate) v += load_floats(op->values + start + c, lanes);
        store_floats(op->values + start + c, v, lanes);
    }
}

#define DEFINE_TILE(op, dtype) \
    static NOINLINE void op##_tile_##dtype(const op *it, i64 i, i64 end) { \
        for (; i < end; i += WIRE_BLOCK) op##_block(it, i, (i32)MIN(WIRE_BLOCK, end - i), dtype); \
    }
#define DEFINE_RUN(op) \
    DEFINE_TILE(op, FP32) \
    DEFINE_TILE(op, FP16) DEFINE_TILE(op, BF16) DEFINE_TILE(op, INT8) static void run_##op(worker *w, const void *p) { \
        static void (*const tiles[])(const op *, i64, i64) = { \
            [FP32] = op##_tile_FP32, [FP16] = op##_tile_FP16, [BF16] = op##_tile_BF16, [INT8] = op##_tile_INT8}; \
        const op *it = p; \
        for (i64 i; (i = next_tile(w) * WIRE_TILE) < it->count;) \
            tiles[it->dtype](it, i, MIN(it->count, i + WIRE_TILE)); \
    } \
    static i64 workspace_##op(i32 threads, const void *p) { \
        (void)threads, (void)p; \
        return 0; \
    }

DEFINE_RUN(encode)
DEFINE_RUN(decode)
