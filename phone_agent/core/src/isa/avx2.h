/* 16 registers of 8 floats, 2 fused multiply-adds per cycle. */
#define LANES 8
#define ISA avx2
/* Block sizes for 32 KB of L1 cache, and 256 KB of L2 cache or more. */
#define BLOCK_ROWS 96          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 192 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 192            /* block of the weight gradient */
#define WGRAD_COLUMNS 256
#define WGRAD_PIXELS 96

/* 12 accumulators, 2 registers for B, 2 for A: all 16 registers. */
#define GEMM_HEADER "isa/f32_gemm_broadcast.h"
#define TILE_VECTORS 2
#define GEMM_KERNELS(X) X(1, 6x8) X(2, 6x16)
enum { MR = 6, PREFETCH_STEP_BYTES = 32 };

/* 12 accumulators, 2 registers for B, 2 for A: all 16 registers. A panel of B (8 x 256 doubles) takes half of a 32
 * KB L1 cache. */
#define F64_GEMM_HEADER "isa/f64_gemm_broadcast.h"
#define f64_gemm FOR_ISA(f64_gemm_6x8)
#define F64_MR 6
#define F64_VECTORS 2
#define F64_BLOCK_DEPTH 256
#define F64_BLOCK_ROWS 72 /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
