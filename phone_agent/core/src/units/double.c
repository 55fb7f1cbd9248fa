#include "unit.h"
#include F64_GEMM_HEADER
#include "../dgemm.c"
#include "../eliminate.c"

EXPORT(dgemm)
EXPORT(eliminate)
