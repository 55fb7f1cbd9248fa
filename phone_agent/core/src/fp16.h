/* 16-bit elements in memory, vectors of floats in registers. Rounds to nearest, ties to even. What is too large for
 * fp16 (above 65504 after rounding) becomes infinite; NaN stays NaN. */
#pragma once
#include "vector.h"

typedef u16 u16_vec __attribute__((ext_vector_type(LANES)));
typedef u16 unaligned_u16_vec __attribute__((ext_vector_type(LANES), aligned(1)));
typedef u16 unaligned_u16 __attribute__((aligned(1)));

INLINE vec bits_as_floats(uvec bits) { return __builtin_bit_cast(vec, bits); }
INLINE uvec floats_as_bits(vec v) { return __builtin_bit_cast(uvec, v); }

#if defined(__F16C__) || defined(__aarch64__)
typedef _Float16 f16_vec __attribute__((ext_vector_type(LANES)));

INLINE vec fp16_to_fp32(u16_vec h) { return __builtin_convertvector(__builtin_bit_cast(f16_vec, h), vec); }
INLINE u16_vec fp32_to_fp16(vec v) { return __builtin_bit_cast(u16_vec, __builtin_convertvector(v, f16_vec)); }
#else
/* Without hardware conversion, with integer operations. Denormals are correct because a float subtraction or
 * addition aligns their bits. */
INLINE vec fp16_to_fp32(u16_vec h) {
    uvec bits = __builtin_convertvector(h, uvec), sign = (bits & 0x8000u) << 16, rest = (bits & 0x7FFFu) << 13;
    uvec normal = rest + (112u << 23);
    uvec denormal = floats_as_bits(bits_as_floats(rest + (113u << 23)) - bits_as_floats((uvec)(113u << 23)));
    uvec special = (rest + (224u << 23)) | ((rest & 0x7FFFFFu) != 0 ? (uvec)(1u << 22) : (uvec)0);
    uvec exponent = rest >> 23;
    return bits_as_floats(sign | (exponent == 0 ? denormal : exponent == 31 ? special : normal));
}
INLINE u16_vec fp32_to_fp16(vec v) {
    uvec bits = floats_as_bits(v), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    uvec odd = size >> 13 & 1u;
    uvec normal = (size - (112u << 23) + 0xFFFu + odd) >> 13;
    /* The last bit of 0.5 has the value of one ulp of fp16's denormals, so the addition rounds there. */
    uvec denormal = floats_as_bits(bits_as_floats(size) + 0.5f) - floats_as_bits((vec)0.5f);
    uvec nan = 0x7E00u | (size >> 13 & 0x3FFu);
    uvec finite = size < 113u << 23 ? denormal : size >= 0x477FF000u ? (uvec)0x7C00u : normal;
    return __builtin_convertvector(sign | (size > 0x7F800000u ? nan : finite), u16_vec);
}
#endif

/* Like load_lanes and store_lanes. */
INLINE u16_vec load_u16_lanes(const unaligned_u16 *p, i32 lanes) {
    if (lanes == LANES) return *(const unaligned_u16_vec *)p;
#if LANES == 16
    return __builtin_masked_load(first_lanes_mask(lanes), (const u16 *)p, (u16_vec)0);
#else
    u16_vec v = 0;
    UNROLL for (i32 i = 0; i < LANES - 1; i++) if (i < lanes) v[i] = p[i];
    return v;
#endif
}
INLINE void store_u16_lanes(unaligned_u16 *p, u16_vec v, i32 lanes) {
    if (lanes == LANES) {
        *(unaligned_u16_vec *)p = v;
        return;
    }
#if LANES == 16
    __builtin_masked_store(first_lanes_mask(lanes), v, (u16 *)p);
#else
    UNROLL for (i32 i = 0; i < LANES - 1; i++) if (i < lanes) p[i] = v[i];
#endif
}

/* Load and store elements of a given dtype, FP32 or FP16, as floats. `dtype` is a constant in every hot loop. */
INLINE i64 dtype_bytes(i32 dtype) { return dtype == FP32 ? 4 : dtype == INT8 ? 1 : 2; }
INLINE void *element_at(const void *p, i64 count, i32 dtype) { return (char *)p + count * dtype_bytes(dtype); }

INLINE vec load_as_fp32(const void *p, i32 lanes, i32 dtype) {
    return dtype == FP16 ? fp16_to_fp32(load_u16_lanes(p, lanes)) : load_lanes(p, lanes);
}
INLINE void store_from_fp32(void *p, vec v, i32 lanes, i32 dtype) {
    if (dtype == FP16) store_u16_lanes(p, fp32_to_fp16(v), lanes);
    else store_lanes(p, v, lanes);
}
