/* 12 sums, 2 of B, 2 of A: all 16 registers. */
#pragma once
#define TILE_VECTORS 2
enum { MR = 6, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 32 };
#include "../../ahead.h"
#include "../broadcast.h"
