/* Memory that will be needed soon, fetched while the processor multiplies: a block's gathering and finishing then find
 * it near, and a layer takes the longer of computing and memory, not their sum. */
#pragma once
#include "half.h"

/* A tile fetches AHEAD_BYTES for each step of k, about what memory delivers meanwhile: AHEAD_RUN bytes side by side, then it
 * jumps. */
enum { AHEAD_RUN = 512, AHEAD_STEPS = AHEAD_RUN / AHEAD_BYTES };

typedef struct {
    const char *at;
    i64 step, jump;
} lookahead;

INLINE void look(const char **at, i64 step) {
    __builtin_prefetch(*at, 0, 2);
    *at += step;
}

/* Stretches of memory, fetched one after the other: `runs` runs, `stride` bytes apart. */
enum { MOST_STRETCHES = 16 };
typedef struct {
    const char *at[MOST_STRETCHES];
    i64 stride[MOST_STRETCHES], runs[MOST_STRETCHES];
    i32 count, current;
} errand;

INLINE void fetch_runs(errand *e, const void *from, i64 stride, i64 runs) {
    if (runs <= 0 || e->count == MOST_STRETCHES) return;
    e->at[e->count] = from;
    e->stride[e->count] = stride;
    e->runs[e->count++] = runs;
}

static void fetch_stored(errand *e, const void *from, i64 count, i32 dtype) {
    fetch_runs(e, from, AHEAD_RUN, CEIL_DIV(count * dtype_bytes(dtype), AHEAD_RUN));
}

static void fetch_floats(errand *e, const float *from, i64 count) { fetch_stored(e, from, count, FP32); }

/* A matrix: rows of `columns` numbers, ld numbers apart. */
static void fetch_matrix(errand *e, const void *from, i64 rows, i64 columns, i64 ld, i32 dtype) {
    for (i64 byte = 0; byte < columns * dtype_bytes(dtype); byte += AHEAD_RUN)
        fetch_runs(e, (const char *)from + byte, ld * dtype_bytes(dtype), rows);
}

/* The same, where what lies between the rows may come along if it is less; narrow columns are not worth their runs. */
static void fetch_columns(errand *e, const void *from, i64 rows, i64 columns, i64 ld, i32 dtype) {
    if (2 * columns > ld) fetch_stored(e, from, rows * ld, dtype);
    else if (2 * columns * dtype_bytes(dtype) >= AHEAD_RUN) fetch_matrix(e, from, rows, columns, ld, dtype);
}

/* What the next k steps may fetch. Where there is nothing (more): `near`, which costs nothing to touch. */
INLINE lookahead next_errand(errand *e, i64 k, const void *near) {
    if (e->current == e->count) return (lookahead){near, 0, 0};
    i32 i = e->current;
    i64 runs = k / AHEAD_STEPS;
    lookahead ahead = {e->at[i], AHEAD_BYTES, e->stride[i] - AHEAD_RUN};
    e->at[i] += runs * e->stride[i];
    e->runs[i] -= runs;
    e->current += e->runs[i] <= 0;
    return ahead;
}
