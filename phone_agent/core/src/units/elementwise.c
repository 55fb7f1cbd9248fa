#include "unit.h"
#include "../norm.c"
#include "../dropout.c"
#include "../loss.c"
#include "../optimiser.c"
#include "../augment.c"

EXPORT(batch_norm_forward)
EXPORT(batch_norm_fold)
EXPORT(batch_norm_backward)
EXPORT(add_forward)
EXPORT(add_backward)
EXPORT(dropout_forward)
EXPORT(dropout_backward)
EXPORT(softmax_loss)
EXPORT(optimizer_update)
EXPORT(augment)
