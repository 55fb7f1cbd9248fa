/* The processor's own limit: multiply-adds that wait for nothing but each other. */

/* Two a cycle, four cycles each, so 8 must be under way; 12 still fit in 16 registers with both factors. */
enum { CHAINS = 12 };

static i64 workspace_fma_peak(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_fma_peak(worker *w, const void *p) {
    const fma_peak *op = p;
    vec chain[CHAINS], factor = splat(0.999f), step = splat(1e-3f);
    UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = splat((float)(w->index + i));
    for (i64 round = 0; round < op->count; round++) {
        UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + step;
        __asm__ volatile("" ::: "memory"); /* keeps clang from rewriting the recurrence */
    }
    vec sum = 0;
    UNROLL for (i32 i = 0; i < CHAINS; i++) sum += chain[i];
    /* The sums are finite; the compiler cannot know, so it must compute them. */
    if (w->index == 0) *op->flops = (double)op->count * CHAINS * LANES * 2 + (sum[0] > 1e30f ? 1 : 0);
    else if (sum[0] > 1e30f) *op->flops = 0;
}
