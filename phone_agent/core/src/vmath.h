/* Vectorized exp, log and pow without libc. Relative errors are below 2e-7 (for pow times |exponent * log|, if that
 * exceeds 1). NaN stays NaN, overflow gives infinity and underflow 0, as in libm. */
#pragma once
#include "vector.h"

INLINE ivec float_bits(vec v) { return __builtin_bit_cast(ivec, v); }
INLINE vec bits_float(ivec v) { return __builtin_bit_cast(vec, v); }
INLINE vec power_of_two(ivec n) { return bits_float((n + 127) << 23); }

/* e^x = 2^n e^r with |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds n and leaves it in the low bits of the sum. */
INLINE vec vexp(vec x) {
    const vec round = splat(12582912.0f);
    x = x > 89.0f ? splat(89.0f) : x;
    x = x < -104.0f ? splat(-104.0f) : x;
    vec shifted = x * 1.44269504f + round, n = shifted - round;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    /* In two steps, because n may be 128 or -150, whose power of two is not a normal number. */
    ivec whole = float_bits(shifted) - float_bits(round), half = whole >> 1;
    return p * power_of_two(half) * power_of_two(whole - half);
}

/* log(m 2^e) = log(m) + e log(2), with m between sqrt(1/2) and sqrt(2). */
INLINE vec vlog(vec x) {
    vec smallest = splat(1.17549435e-38f);
    vec scaled = x < smallest ? x * 8388608.0f : x;
    ivec bits = float_bits(scaled) - 0x3f3504f3; /* sqrt(1/2) */
    vec e = __builtin_convertvector(bits >> 23, vec) - (x < smallest ? splat(23.0f) : (vec)0);
    vec r = bits_float((bits & 0x007fffff) + 0x3f3504f3) - 1.0f, square = r * r;
    vec p = splat(7.0376836292e-2f);
    p = p * r - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    p = p * r * square - e * 2.12194440e-4f - 0.5f * square;
    vec y = r + p + e * 0.693359375f;
    const vec infinity = splat(__builtin_inff());
    y = x == 0 ? -infinity : y;
    y = x == infinity ? x : y;
    return x < 0 || x != x ? splat(__builtin_nanf("")) : y;
}

INLINE vec vsqrt(vec x) { return __builtin_elementwise_sqrt(x); }

/* base^exponent, for base > 0. */
INLINE vec vpow(vec base, float exponent) { return vexp(vlog(base) * exponent); }

INLINE float scalar_exp(float x) { return vexp(splat(x))[0]; }
INLINE float scalar_log(float x) { return vlog(splat(x))[0]; }
