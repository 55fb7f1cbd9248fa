// clang-format off: each file needs the ones above it
#include "unit.h"
#include "depthwise/convolve.c"
#include "depthwise/weight_gradient.c"
// clang-format on

EXPORT(depthwise_forward)
EXPORT(depthwise_backward_data)
EXPORT(depthwise_backward_weights)
