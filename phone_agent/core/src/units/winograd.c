// clang-format off: each file needs the ones above it
#include "winograd/winograd.h"
#include "winograd/convolve.c"
#include "winograd/weight_gradient.c"
// clang-format on
