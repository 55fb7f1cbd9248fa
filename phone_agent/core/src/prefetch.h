/* Software prefetch during a GEMM. The microkernels prefetch the memory that the next packing step or epilogue will
 * touch, so that a layer takes the longer of computing and memory access, not their sum. */
#pragma once
#include "fp16.h"

/* A microkernel prefetches PREFETCH_STEP_BYTES per step of k, about what memory delivers in that time:
 * PREFETCH_RUN_BYTES contiguous bytes, then it jumps to the next run. */
enum { PREFETCH_RUN_BYTES = 512, PREFETCH_RUN_STEPS = PREFETCH_RUN_BYTES / PREFETCH_STEP_BYTES };

typedef struct {
    const char *at;
    i64 step, jump;
} prefetch_cursor;

INLINE void prefetch_next(const char **at, i64 step) {
    __builtin_prefetch(*at, 0, 2);
    *at += step;
}

/* A list of memory ranges to prefetch one after the other. Each range has `runs` runs, `stride` bytes apart. */
enum { MAX_PREFETCH_RANGES = 16 };
typedef struct {
    const char *at[MAX_PREFETCH_RANGES];
    i64 stride[MAX_PREFETCH_RANGES], runs[MAX_PREFETCH_RANGES];
    i32 count, current;
} prefetch_list;

INLINE void prefetch_runs(prefetch_list *list, const void *from, i64 stride, i64 runs) {
    if (runs <= 0 || list->count == MAX_PREFETCH_RANGES) return;
    list->at[list->count] = from;
    list->stride[list->count] = stride;
    list->runs[list->count++] = runs;
}

static void prefetch_elements(prefetch_list *list, const void *from, i64 count, i32 dtype) {
    prefetch_runs(list, from, PREFETCH_RUN_BYTES, CEIL_DIV(count * dtype_bytes(dtype), PREFETCH_RUN_BYTES));
}

static void prefetch_floats(prefetch_list *list, const float *from, i64 count) {
    prefetch_elements(list, from, count, FP32);
}

/* A matrix: rows of `columns` elements, `ld` elements apart. */
static void prefetch_matrix(prefetch_list *list, const void *from, i64 rows, i64 columns, i64 ld, i32 dtype) {
    for (i64 byte = 0; byte < columns * dtype_bytes(dtype); byte += PREFETCH_RUN_BYTES)
        prefetch_runs(list, (const char *)from + byte, ld * dtype_bytes(dtype), rows);
}

/* Some columns of a matrix. If they are more than half of it, the whole rows are prefetched, gaps included. Narrow
 * columns are not worth their runs. */
static void prefetch_columns(prefetch_list *list, const void *from, i64 rows, i64 columns, i64 ld, i32 dtype) {
    if (2 * columns > ld) prefetch_elements(list, from, rows * ld, dtype);
    else if (2 * columns * dtype_bytes(dtype) >= PREFETCH_RUN_BYTES)
        prefetch_matrix(list, from, rows, columns, ld, dtype);
}

/* What the next k steps prefetch. An exhausted list gives `near`, which is in the cache already and costs nothing to
 * prefetch. */
INLINE prefetch_cursor prefetch_list_next(prefetch_list *list, i64 k, const void *near) {
    if (list->current == list->count) return (prefetch_cursor){near, 0, 0};
    i32 i = list->current;
    i64 runs = k / PREFETCH_RUN_STEPS;
    prefetch_cursor cursor = {list->at[i], PREFETCH_STEP_BYTES, list->stride[i] - PREFETCH_RUN_BYTES};
    list->at[i] += runs * list->stride[i];
    list->runs[i] -= runs;
    list->current += list->runs[i] <= 0;
    return cursor;
}
