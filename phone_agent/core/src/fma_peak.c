/* Peak rate of the processor: fused multiply-adds in registers, without memory access. */

/* Independent accumulators. Two multiply-adds per cycle with a latency of four cycles need 8; 12 still fit into 16
 * registers together with both factors. */
enum { CHAINS = 12 };

typedef double f64_peak_vec __attribute__((ext_vector_type(LANES / 2)));

static i64 workspace_fma_peak(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

/* Returns one lane of the result, so that the compiler cannot remove the loop. */
#define DEFINE_FMA_LOOP(name, type) \
    static NOINLINE double name(i64 rounds, i32 start) { \
        type chain[CHAINS], factor = 0.999f, step = 1e-3f; \
        UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = (float)(start + i); \
        for (i64 round = 0; round < rounds; round++) { \
            UNROLL for (i32 i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + step; \
            __asm__ volatile("" ::: "memory"); /* keeps clang from rewriting the recurrence */ \
        } \
        type sum = 0; \
        UNROLL for (i32 i = 0; i < CHAINS; i++) sum += chain[i]; \
        return sum[0]; \
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
