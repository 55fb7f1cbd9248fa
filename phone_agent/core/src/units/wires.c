#include "unit.h"
#include "../wire.c"
#include "../lowrank.c"

EXPORT(encode)
EXPORT(decode)
EXPORT(lowrank_sketch)
EXPORT(lowrank_orthonormalize)
EXPORT(lowrank_project)
EXPORT(lowrank_reconstruct)
