/* What a kernel needs from the thread pool: its part of the work, a barrier, and workspace memory. */
#pragma once
#include "common.h"

typedef struct {
    thread_pool *thread_pool;
    i32 index, threads;
    char *workspace; /* shared by all threads; core_workspace tells its size */
} worker;

/* Dynamic scheduling: the index of the next tile that no thread has claimed. The loop ends when it reaches the number
 * of tiles. There may be one such loop between two barriers. */
i64 next_tile(worker *w);
/* Barrier: waits for all threads, makes their writes visible, and restarts next_tile at 0. */
void barrier(worker *w);

/* core_pool_run for use inside the core: a call of the exported function would go through Android's linker. */
void thread_pool_run(thread_pool *p, const step *program, i32 count, i64 *nanoseconds);

/* Static scheduling: the range start .. end - 1 of `count` items that belongs to part `index` of `parts`. */
static inline void split_range(i64 count, i32 index, i32 parts, i64 *start, i64 *end) {
    *start = count * index / parts;
    *end = count * (index + 1) / parts;
}
