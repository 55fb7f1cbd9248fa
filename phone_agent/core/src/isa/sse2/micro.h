/* 8 sums, 2 of B, products and A in the other 6 of 16 registers. */
#pragma once
#define TILE_VECTORS 2
enum { MR = 4, NR = TILE_VECTORS * LANES, PREFETCH_STEP_BYTES = 16 };
#include "../../ahead.h"
#include "../broadcast.h"
