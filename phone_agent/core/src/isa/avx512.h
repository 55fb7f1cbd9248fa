/* 32 registers of 16 floats, 2 fused multiply-adds per cycle. */
#define LANES 16
#define ISA avx512
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

/* 24 accumulators, 4 registers for B, 1 for A. Wide rather than tall, because an Ice Lake core hardly loads more
 * than one 512-bit vector per cycle: a 6 x 64 tile needs 10 loads for 24 multiply-adds (12 cycles), a 14 x 32 tile
 * 16 loads for 28. */
#define GEMM_HEADER "isa/f32_gemm_broadcast.h"
#define TILE_VECTORS 4
#define GEMM_KERNELS(X) X(1, 6x16) X(2, 6x32) X(3, 6x48) X(4, 6x64)
enum { MR = 6, PREFETCH_STEP_BYTES = 64 };

/* 24 accumulators, 4 registers for B, 1 for A, as for floats. A panel of B (32 x 128 doubles) leaves room for A and
 * C in a 48 KB L1 cache. */
#define F64_GEMM_HEADER "isa/f64_gemm_broadcast.h"
#define f64_gemm FOR_ISA(f64_gemm_6x32)
#define F64_MR 6
#define F64_VECTORS 4
#define F64_BLOCK_DEPTH 128
#define F64_BLOCK_ROWS 192 /* of A, which stay in the L2 cache */
#define F64_BLOCK_COLUMNS 512
