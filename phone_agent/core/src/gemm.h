/* Matrices of any size out of the ISA's register tiles. */
#pragma once
#include "rows.h"
#include MICRO_HEADER
