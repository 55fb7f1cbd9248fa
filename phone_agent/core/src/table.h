/* What an ISA offers: one table, filled by units/table.c compiled for it. */
#pragma once
#include "runtime.h"

typedef struct {
    void (*run[KIND_COUNT])(worker *w, const void *op);
    i64 (*workspace[KIND_COUNT])(i32 threads, const void *op); /* null: none */
    i32 lanes;
} isa_table;

extern const isa_table *const isa_tables[]; /* best first: isas.c */
