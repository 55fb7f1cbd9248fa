#include "unit.h"
#include DOUBLE_HEADER
#include "../dgemm.c"

EXPORT(dgemm)
