/* 32 registers of 16 floats, 2 fused multiply-adds a cycle. */
#define LANES 16
#define ISA avx512
#define GEMM_HEADER "isa/avx512/f32_gemm.h"
#define F64_GEMM_HEADER "isa/avx512/f64_gemm.h"
/* A panel of B (64 x 160 floats) fits an L1 of 48 KB; what a thread works on stays under 1 MB of L2. */
#define BLOCK_ROWS 96 /* of gathered pixels */
#define PRIVATE_BLOCK_ROWS 396 /* the same where a thread packs weights for itself */
#define BLOCK_DEPTH 160
#define BLOCK_COLUMNS 512 /* of a block's results */
#define PRIVATE_BLOCK_COLUMNS 256 /* of those weights */
#define WGRAD_ROWS 480 /* of a block of weight gradients */
#define WGRAD_COLUMNS 512
#define WGRAD_PIXELS 112
