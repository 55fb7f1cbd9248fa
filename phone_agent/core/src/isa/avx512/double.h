/* 24 sums, 4 of B, 1 of A, as of floats. A panel of B (32 x 128 doubles) leaves
 * room for what comes by of A and C in an L1 of 48 KB. */
#define DOUBLE_ROWS 6
#define DOUBLE_VECTORS 4
#define DOUBLE_DEPTH 128
#define DOUBLE_BLOCK_ROWS 192 /* of A, which stay in L2 */
#define DOUBLE_BLOCK_COLUMNS 512
#include "../double.h"
