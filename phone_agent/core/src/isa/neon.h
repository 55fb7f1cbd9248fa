/* 32 registers of 4 floats, 2 fused multiply-adds per cycle on a Cortex-A76. */
#define LANES 4
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
#define ISA neon_fp16
#else
#define ISA neon
#endif
/* Block sizes for a Cortex-A76: 64 KB of L1 cache, 256 KB of L2 cache. */
#define BLOCK_ROWS 64          /* pixels (rows of A) per block */
#define PRIVATE_BLOCK_ROWS 128 /* the same if a thread packs its own weights */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 256         /* output channels per block */
#define PRIVATE_BLOCK_COLUMNS 128 /* the same if a thread packs its own weights */
#define WGRAD_ROWS 128            /* block of the weight gradient */
#define WGRAD_COLUMNS 128
#define WGRAD_PIXELS 96

/* 8 x 8 tile: 16 accumulators, 8 registers for A, 8 for B. A register holds 4 floats of A and is multiplied by lane,
 * so loads never hold up the two multiply-adds per cycle of a Cortex-A76. */
#define GEMM_HEADER "isa/f32_gemm_lane.h"
#define TILE_VECTORS 2
#define GEMM_KERNELS(X) X(1, 8x4) X(2, 8x8)
enum { MR = 8, PREFETCH_STEP_BYTES = 16 };

/* 6 x 8 tile: 24 accumulators, 3 registers for A, 4 for B. A register holds 2 doubles of A and is multiplied by
 * lane, so 7 loads feed 24 multiply-adds. */
#define F64_GEMM_HEADER "isa/f64_gemm_lane.h"
#define f64_gemm FOR_ISA(f64_gemm_6x8)
#define F64_MR 6
#define F64_VECTORS 4
#define F64_BLOCK_DEPTH 256 /* a panel of B takes 16 KB of a Cortex-A76's 64 KB L1 cache */
#define F64_BLOCK_ROWS 72   /* of A, which stay in a 256 KB L2 cache */
#define F64_BLOCK_COLUMNS 512
