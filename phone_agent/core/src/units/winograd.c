#include "../winograd.h"
#include "../winograd.c"
