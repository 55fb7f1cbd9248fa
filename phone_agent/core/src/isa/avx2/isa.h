/* 16 registers of 8 floats, 2 fused multiply-adds a cycle. */
#define LANES 8
#define ISA avx2
#define GEMM_HEADER "isa/avx2/f32_gemm.h"
#define F64_GEMM_HEADER "isa/avx2/f64_gemm.h"
/* For L1 of 32 KB, L2 of 256 KB and more. */
#define BLOCK_ROWS 96 /* of gathered pixels */
#define PRIVATE_BLOCK_ROWS 192 /* the same where a thread packs weights for itself */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256 /* of a block's results */
#define PRIVATE_BLOCK_COLUMNS 128 /* of those weights */
#define WGRAD_ROWS 192 /* of a block of weight gradients */
#define WGRAD_COLUMNS 256
#define WGRAD_PIXELS 96
