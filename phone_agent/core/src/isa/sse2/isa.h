/* The baseline of x86-64: 16 registers of 4 floats, no fused multiply-add. */
#define LANES 4
#define ISA sse2
#define GEMM_HEADER "isa/sse2/f32_gemm.h"
#define F64_GEMM_HEADER "isa/sse2/f64_gemm.h"
/* Block sizes for 32 KB of L1 cache, and 256 KB of L2 cache or more. */
#define BLOCK_ROWS 64          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 128 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 128         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 128            /* block of the weight gradient */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96
