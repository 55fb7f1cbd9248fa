/* 24 accumulators, 4 registers for B, 1 for A. Wide rather than tall, because an Ice Lake core hardly loads more
 * than one 512-bit vector per cycle: a 6 x 64 tile needs 10 loads for 24 multiply-adds (12 cycles), a 14 x 32 tile
 * 16 loads for 28. */
#pragma once
#define TILE_VECTORS 4
#define GEMM_KERNELS(X) X(1, 6x16) X(2, 6x32) X(3, 6x48) X(4, 6x64)
enum { MR = 6, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 64 };
#include "../../prefetch.h"
#include "../f32_gemm_broadcast.h"
