/* What every x86-64 has: 16 registers of 4 floats, no fused multiply-add. */
#define LANES 4
#define TABLE table_plain
#define MICRO_HEADER "isa/plain/micro.h"
