/* 12 accumulators, 2 registers for B, 2 for A: all 16 registers. */
#pragma once
#define TILE_VECTORS 2
#define GEMM_KERNELS(X) X(1, 6x8) X(2, 6x16)
enum { MR = 6, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 32 };
#include "../../prefetch.h"
#include "../f32_gemm_broadcast.h"
