/* 32 registers of 16 floats, 2 fused multiply-adds per cycle. */
#define LANES 16
#define ISA avx512
#define GEMM_HEADER "isa/avx512/f32_gemm.h"
#define F64_GEMM_HEADER "isa/avx512/f64_gemm.h"
/* Block sizes: a panel of B (64 x 160 floats) fits into a 48 KB L1 cache, and the data of a thread into 1 MB of L2
 * cache. */
#define BLOCK_ROWS 96          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 396 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 160
#define BLOCK_COLUMNS 512         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 256 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 480            /* block of the weight gradient */
#define WGRAD_COLUMNS 512
#define WGRAD_PIXELS 112
