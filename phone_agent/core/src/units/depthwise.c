#include "unit.h"
#include "../depthwise.c"

EXPORT(depthwise_forward)
EXPORT(depthwise_backward_data)
EXPORT(depthwise_backward_weights)
