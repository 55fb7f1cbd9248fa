/* 12 sums, 2 of B, 2 of A: all 16 registers. */
#pragma once
enum { MR = 6, NR = 16, NR_HALF = NR / 2 };
#include "../broadcast.h"
