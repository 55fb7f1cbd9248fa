// clang-format off: each file needs the ones above it
#include "unit.h"
#include "gemm.h"
#include "winograd/winograd.h"
#include "conv/gather.c"
#include "conv/gemm.c"
#include "conv/weight_gradient.c"
#include "conv/conv.c"
#include "fma_peak.c"
// clang-format on

EXPORT(conv_forward)
EXPORT(conv_backward_data)
EXPORT(conv_backward_weights)
EXPORT(fma_peak)
