// clang-format off: each file needs the ones above it
#include "unit.h"
#include "batch_norm.c"
#include "add.c"
#include "dropout.c"
#include "softmax_loss.c"
#include "optimizer.c"
#include "augment.c"
// clang-format on

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
