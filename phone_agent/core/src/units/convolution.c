#include "unit.h"
#include "../gemm.h"
#include "../winograd.h"
#include "../conv.c"
#include "../peak.c"

EXPORT(conv_forward)
EXPORT(conv_backward_data)
EXPORT(conv_backward_weights)
EXPORT(fma_peak)
