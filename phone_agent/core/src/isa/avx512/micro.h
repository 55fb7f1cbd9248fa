/* 28 sums, 2 of B, 1 of A: 31 of 32 registers. 14 divides the pixels of 7, 14, 28, 56, 112-wide maps. */
#pragma once
enum { MR = 14, NR = 32, NR_HALF = NR / 2 };
#include "../broadcast.h"
