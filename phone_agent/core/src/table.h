/* What an ISA offers: one table, filled by units/table.c compiled for it. */
#pragma once
#include "runtime.h"

typedef struct {
    void (*run[KIND_COUNT])(worker *w, const void *op);
    i64 (*workspace[KIND_COUNT])(i32 threads, const void *op); /* null: none */
    i32 lanes;
} kernel_table;

extern const kernel_table *const kernel_tables[]; /* best first: isas.c */
