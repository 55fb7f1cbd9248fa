#include "unit.h"
#include "../pool.c"
#include "../lrn.c"

EXPORT(pooling_forward)
EXPORT(pooling_backward)
EXPORT(lrn_forward)
EXPORT(lrn_backward)
