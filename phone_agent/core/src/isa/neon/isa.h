/* 32 registers of 4 floats, 2 fused multiply-adds per cycle on a Cortex-A76. */
#define LANES 4
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
#define ISA neon_fp16
#else
#define ISA neon
#endif
#define GEMM_HEADER "isa/neon/f32_gemm.h"
#define F64_GEMM_HEADER "isa/neon/f64_gemm.h"
/* Block sizes for a Cortex-A76: 64 KB of L1 cache, 256 KB of L2 cache. */
#define BLOCK_ROWS 64          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 128 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 128            /* block of the weight gradient */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96
