/* What a kernel needs of the machine: a share of the work, the others, and some memory. */
#pragma once
#include "core.h"

typedef struct {
    thread_pool *thread_pool;
    i32 index, threads;
    char *workspace; /* shared by the team; core_workspace said how much */
} worker;

/* The next tile of this phase, or `tiles` and beyond when there is none left. One such loop between two meetings. */
i64 next_tile(worker *w);
/* Nobody passes before all have come; what was written before is seen after. Starts the next phase's count at 0. */
void barrier(worker *w);

/* core_run, for the core itself: a call of what is exported would have to be found by Android's linker. */
void thread_pool_run(thread_pool *p, const step *program, i32 count, i64 *nanoseconds);

/* The tiles start .. end of `count` that worker `index` of `threads` would get if they were dealt out evenly. */
static inline void split_range(i64 count, i32 index, i32 threads, i64 *start, i64 *end) {
    *start = count * index / threads;
    *end = count * (index + 1) / threads;
}

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define UNROLL _Pragma("clang loop unroll(full)")

void *memcpy(void *to, const void *from, unsigned long bytes);
void *memset(void *to, int value, unsigned long bytes);
void *memmove(void *to, const void *from, unsigned long bytes);
