/* 32 registers of 16 floats, 2 fused multiply-adds a cycle. */
#define LANES 16
#define TABLE table_avx512
#define MICRO_HEADER "isa/avx512/micro.h"
/* A panel of B (32 x 256 floats) fills two thirds of a 48 KB L1; what a thread works on stays under 1 MB of L2. */
#define BLOCK_ROWS 112 /* of gathered pixels */
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 512 /* of a block's results, where depth is more than one block */
#define PACK_COLUMNS 128 /* of weights that a thread packs for itself */
#define GRADIENT_ROWS 224 /* of a block of weight gradients */
#define GRADIENT_COLUMNS 256
#define GRADIENT_PIXELS 256
