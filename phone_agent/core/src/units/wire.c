// clang-format off: each file needs the ones above it
#include "unit.h"
#include "../wire.c"
#include "low_rank.c"
// clang-format on

EXPORT(encode)
EXPORT(decode)
EXPORT(lowrank_sketch)
EXPORT(lowrank_orthonormalize)
EXPORT(lowrank_project)
EXPORT(lowrank_reconstruct)
