/* Memory that will be needed soon, fetched while the processor multiplies: a block's gathering and finishing then find
 * it near, and a layer takes the longer of computing and memory, not their sum. */
#pragma once
#include "vector.h"

/* `step` is 0 where there is nothing (more) to fetch. */
typedef struct {
    const char *at;
    i64 step;
} lookahead;

/* AHEAD_BYTES for each step of k: about what memory delivers while a tile makes one. */
INLINE void look(lookahead *ahead, i32 steps) {
    __builtin_prefetch(ahead->at, 0, 2);
    ahead->at += ahead->step * steps;
}

/* Stretches of memory, fetched one after the other. */
enum { MOST_STRETCHES = 4 };
typedef struct {
    const char *at[MOST_STRETCHES], *end[MOST_STRETCHES];
    i32 count, current;
} errand;

INLINE void fetch_later(errand *e, const float *from, i64 floats) {
    if (floats <= 0 || e->count == MOST_STRETCHES) return;
    e->at[e->count] = (const char *)from;
    e->end[e->count++] = (const char *)(from + floats);
}

/* What the next k steps may fetch. `near`: some memory that costs nothing to touch. */
INLINE lookahead next_errand(errand *e, i64 k, const void *near) {
    if (e->current == e->count) return (lookahead){near, 0};
    lookahead ahead = {e->at[e->current], AHEAD_BYTES};
    e->at[e->current] += k * AHEAD_BYTES;
    if (e->at[e->current] >= e->end[e->current]) e->current++;
    return ahead;
}
