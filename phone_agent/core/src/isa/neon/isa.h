/* 32 registers of 4 floats, 2 fused multiply-adds a cycle on a Cortex-A76. */
#define LANES 4
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
#define ISA neon_fp16
#else
#define ISA neon
#endif
#define GEMM_HEADER "isa/neon/f32_gemm.h"
#define F64_GEMM_HEADER "isa/neon/f64_gemm.h"
/* For a Cortex-A76: L1 64 KB, L2 256 KB. */
#define BLOCK_ROWS 64 /* of gathered pixels */
#define PRIVATE_BLOCK_ROWS 128 /* the same where a thread packs weights for itself */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256 /* of a block's results */
#define PRIVATE_BLOCK_COLUMNS 128 /* of those weights */
#define WGRAD_ROWS 128 /* of a block of weight gradients */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96
