// clang-format off: each file needs the ones above it
#include "unit.h"
#include "../pooling.c"
#include "lrn.c"
// clang-format on

EXPORT(pooling_forward)
EXPORT(pooling_backward)
EXPORT(lrn_forward)
EXPORT(lrn_backward)
