/* 8 sums, 2 of B, products and A in the other 6 of 16 registers. */
#pragma once
enum { MR = 4, NR = 8, NR_HALF = NR / 2 };
#include "../broadcast.h"
