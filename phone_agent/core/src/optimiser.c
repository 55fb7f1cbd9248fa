/* The optimiser's step: one pass over the packed buffers. */

enum { SGD_FLOATS = 8 * 1024 }; /* in a tile */

INLINE void sgd_step(const sgd *op, i64 i, i32 lanes, float rate, float momentum, float decay) {
    vec w = load_lanes(op->values + i, lanes);
    vec v = momentum * load_lanes(op->momenta + i, lanes) + (load_lanes(op->gradients + i, lanes) + decay * w);
    store_lanes(op->momenta + i, v, lanes);
    store_lanes(op->values + i, w - rate * v, lanes);
}

static void run_sgd(worker *w, const void *p) {
    const sgd *op = p;
    float rate = op->rules[0], momentum = op->rules[1], decay = op->rules[2];
    for (i64 i; (i = take(w) * SGD_FLOATS) < op->count;) {
        i64 end = MIN(op->count, i + SGD_FLOATS);
        for (; i + 2 * LANES <= end; i += 2 * LANES) {
            sgd_step(op, i, LANES, rate, momentum, decay);
            sgd_step(op, i + LANES, LANES, rate, momentum, decay);
        }
        for (; i < end; i += LANES) sgd_step(op, i, (i32)MIN(LANES, end - i), rate, momentum, decay);
    }
}

static i64 workspace_sgd(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
