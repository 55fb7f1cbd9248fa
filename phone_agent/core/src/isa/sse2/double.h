/* 8 sums, 2 of B, products and A in the other 6 of 16 registers. */
#define DOUBLE_ROWS 4
#define DOUBLE_VECTORS 2
#define DOUBLE_DEPTH 256
#define DOUBLE_BLOCK_ROWS 64 /* of A, which stay in an L2 of 256 KB */
#define DOUBLE_BLOCK_COLUMNS 512
#include "../double.h"
