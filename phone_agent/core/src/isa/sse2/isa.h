/* What every x86-64 has: 16 registers of 4 floats, no fused multiply-add. */
#define LANES 4
#define ISA sse2
#define GEMM_HEADER "isa/sse2/f32_gemm.h"
#define F64_GEMM_HEADER "isa/sse2/f64_gemm.h"
/* For L1 of 32 KB, L2 of 256 KB and more. */
#define BLOCK_ROWS 64 /* of gathered pixels */
#define PRIVATE_BLOCK_ROWS 128 /* the same where a thread packs weights for itself */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 128 /* of a block's results */
#define PRIVATE_BLOCK_COLUMNS 128 /* of those weights */
#define WGRAD_ROWS 128 /* of a block of weight gradients */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96
