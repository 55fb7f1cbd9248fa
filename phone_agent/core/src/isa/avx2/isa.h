/* 16 registers of 8 floats, 2 fused multiply-adds per cycle. */
#define LANES 8
#define ISA avx2
#define GEMM_HEADER "isa/avx2/f32_gemm.h"
#define F64_GEMM_HEADER "isa/avx2/f64_gemm.h"
/* Block sizes for 32 KB of L1 cache, and 256 KB of L2 cache or more. */
#define BLOCK_ROWS 96          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 192 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 192            /* block of the weight gradient */
#define WGRAD_COLUMNS 256
#define WGRAD_PIXELS 96
