#include "unit.h"
#include DOUBLE_HEADER
#include "../dgemm.c"
#include "../eliminate.c"

EXPORT(dgemm)
EXPORT(eliminate)
