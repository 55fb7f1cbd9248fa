/* 32 registers of 16 floats, 2 fused multiply-adds a cycle. */
#define LANES 16
#define TABLE table_avx512
#define MICRO_HEADER "isa/avx512/micro.h"
