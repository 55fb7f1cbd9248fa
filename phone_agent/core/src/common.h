/* Macros that all sources share, and the memory functions that the compiler may call. */
#pragma once
#include "core.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define UNROLL _Pragma("clang loop unroll(full)")

/* A name with the ISA it is compiled for: FOR_ISA(f32_gemm_6x16) is f32_gemm_6x16_avx2. */
#define FOR_ISA(name) FOR_ISA_EXPANDED(name, ISA)
#define FOR_ISA_EXPANDED(name, isa) FOR_ISA_PASTED(name, isa)
#define FOR_ISA_PASTED(name, isa) name##_##isa

void *memcpy(void *to, const void *from, unsigned long bytes);
void *memset(void *to, int value, unsigned long bytes);
void *memmove(void *to, const void *from, unsigned long bytes);
