/* 24 sums, 4 of B, 1 of A. Wide rather than tall: an Ice Lake core hardly loads more than one 512-bit vector a cycle, and
 * a tile of 6 x 64 needs 10 loads for 24 multiply-adds (12 cycles) where one of 14 x 32 needs 16 for 28. */
#pragma once
#define TILE_VECTORS 4
#define GEMM_KERNELS(X) X(1, 6x16) X(2, 6x32) X(3, 6x48) X(4, 6x64)
enum { MR = 6, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 64 };
#include "../../prefetch.h"
#include "../f32_gemm_broadcast.h"
