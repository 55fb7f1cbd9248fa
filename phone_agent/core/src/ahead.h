/* Memory that will be needed soon, fetched while the processor multiplies: a block's gathering and finishing then find
 * it near, and a layer takes the longer of computing and memory, not their sum. */
#pragma once
#include "vector.h"

INLINE void look(const char **ahead, i64 step) {
    __builtin_prefetch(*ahead, 0, 2);
    *ahead += step;
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

/* What the next k steps may fetch: AHEAD_BYTES each, about what memory delivers while a tile makes one. Where there is nothing
 * (more), `near`, which costs nothing to touch, with a step of 0. */
INLINE const char *next_errand(errand *e, i64 k, const void *near, i64 *step) {
    *step = e->current < e->count ? AHEAD_BYTES : 0;
    if (!*step) return near;
    const char *at = e->at[e->current];
    e->at[e->current] = at + k * AHEAD_BYTES;
    if (e->at[e->current] >= e->end[e->current]) e->current++;
    return at;
}
