/* 8 accumulators and 2 registers for B; products and A use the other 6 of 16 registers. */
#pragma once
#define TILE_VECTORS 2
#define GEMM_KERNELS(X) X(1, 4x4) X(2, 4x8)
enum { MR = 4, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 16 };
#include "../../prefetch.h"
#include "../f32_gemm_broadcast.h"
