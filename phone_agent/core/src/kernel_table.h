/* The kernels of one ISA. units/kernel_table.c fills one table per ISA. */
#pragma once
#include "thread_pool.h"

typedef struct {
    void (*run[KIND_COUNT])(worker *w, const void *op);
    i64 (*workspace[KIND_COUNT])(i32 threads, const void *op); /* null: none needed */
    i32 lanes;
} kernel_table;

extern const kernel_table *const kernel_tables[]; /* best ISA first; defined in isa_dispatch.c */
