/* The processor's own limit: multiply-adds that wait for nothing but each other. */

/* Two a cycle, four cycles each, so 8 must be under way; 12 still fit in 16 registers with both factors. */
enum { CHAINS = 12 };

typedef double f64_peak_vec __attribute__((ext_vector_type(LANES / 2)));

static i64 workspace_fma_peak(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

/* A function that returns one number of the result, which is finite; the compiler cannot know, so it must compute it. */
#define DEFINE_FMA_LOOP(name, type)                                                                                             \
    static NOINLINE double name(i64 rounds, i32 start) {                                                                      \
        type chain[CHAINS], factor = 0.999f, step = 1e-3f;                                                                    \
        UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = (float)(start + i);                                                \
        for (i64 round = 0; round < rounds; round++) {                                                                        \
            UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + step;                                      \
            __asm__ volatile("" ::: "memory"); /* keeps clang from rewriting the recurrence */                                \
        }                                                                                                                     \
        type sum = 0;                                                                                                         \
        UNROLL for (i32 i = 0; i < CHAINS; i++) sum += chain[i];                                                              \
        return sum[0];                                                                                                        \
    }

DEFINE_FMA_LOOP(fma_loop_f32, vec)
DEFINE_FMA_LOOP(fma_loop_f64, f64_peak_vec)

static void run_fma_peak(worker *w, const void *p) {
    const fma_peak *op = p;
    double result = op->in_double ? fma_loop_f64(op->count, w->index) : fma_loop_f32(op->count, w->index);
    i32 lanes = op->in_double ? LANES / 2 : LANES;
    if (w->index == 0) *op->flops = (double)op->count * CHAINS * lanes * 2 + (result > 1e30 ? 1 : 0);
    else if (result > 1e30) *op->flops = 0;
}
