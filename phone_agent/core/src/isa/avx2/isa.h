/* 16 registers of 8 floats, 2 fused multiply-adds a cycle. */
#define LANES 8
#define TABLE table_avx2
#define MICRO_HEADER "isa/avx2/micro.h"
