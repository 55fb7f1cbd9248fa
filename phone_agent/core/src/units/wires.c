#include "unit.h"
#include "../wire.c"
#include "../lowrank.c"

EXPORT(encode)
EXPORT(decode)
EXPORT(lowrank_sketch)
EXPORT(lowrank_orthonormalise)
EXPORT(lowrank_project)
EXPORT(lowrank_restore)
