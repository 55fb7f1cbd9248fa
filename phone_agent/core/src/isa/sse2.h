/* The baseline of x86-64: 16 registers of 4 floats, no fused multiply-add. */
#define LANES 4
#define ISA sse2
/* Block sizes for 32 KB of L1 cache, and 256 KB of L2 cache or more. */
#define BLOCK_ROWS 64          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 128 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 128         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 128            /* block of the weight gradient */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96

/* 8 accumulators and 2 registers for B; products and A use the other 6 of 16 registers. */
#define GEMM_HEADER "isa/f32_gemm_broadcast.h"
#define TILE_VECTORS 2
#define GEMM_KERNELS(X) X(1, 4x4) X(2, 4x8)
enum { MR = 4, PREFETCH_STEP_BYTES = 16 };

/* 8 accumulators and 2 registers for B; products and A use the other 6 of 16 registers. */
#define F64_GEMM_HEADER "isa/f64_gemm_broadcast.h"
#define f64_gemm FOR_ISA(f64_gemm_4x4)
#define F64_MR 4
#define F64_VECTORS 2
#define F64_BLOCK_DEPTH 256
#define F64_BLOCK_ROWS 64 /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
