/* 24 sums, 4 of B, 1 of A, as of floats. A panel of B (32 x 160 doubles) fits an L1 of 48 KB. */
#define DOUBLE_ROWS 6
#define DOUBLE_VECTORS 4
#define DOUBLE_DEPTH 160
#define DOUBLE_BLOCK_ROWS 192 /* of A, which stay in L2 */
#define DOUBLE_BLOCK_COLUMNS 512
#include "../double.h"
