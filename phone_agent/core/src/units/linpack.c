// clang-format off: each file needs the ones above it
#include "unit.h"
#include F64_GEMM_HEADER
#include "dgemm.c"
#include "eliminate.c"
// clang-format on

EXPORT(dgemm)
EXPORT(eliminate)
