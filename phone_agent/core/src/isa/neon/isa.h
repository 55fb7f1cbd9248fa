/* 32 registers of 4 floats, 2 fused multiply-adds a cycle on a Cortex-A76. */
#define LANES 4
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
#define TABLE table_neon_fp16
#else
#define TABLE table_neon
#endif
#define MICRO_HEADER "isa/neon/micro.h"
