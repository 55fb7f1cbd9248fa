#include "unit.h"
#include "../pool.c"
#include "../lrn.c"

EXPORT(pool_forward)
EXPORT(pool_backward)
EXPORT(lrn_forward)
EXPORT(lrn_backward)
