#include "unit.h"
#include "../norm.c"
#include "../dropout.c"
#include "../loss.c"
#include "../optimiser.c"
#include "../augment.c"

EXPORT(norm_forward)
EXPORT(norm_fold)
EXPORT(norm_backward)
EXPORT(join_forward)
EXPORT(join_backward)
EXPORT(dropout_forward)
EXPORT(dropout_backward)
EXPORT(softmax_loss)
EXPORT(update)
EXPORT(augment)
