/* Softmax and cross-entropy, with the gradient, one image at a time. */
#include "vmath.h"

INLINE float max_lane(vec v) {
    float largest = v[0];
    for (i32 i = 1; i < LANES; i++) largest = v[i] > largest ? v[i] : largest;
    return largest;
}

/* May ignore NaN, which then appears in the sum of the exponentials. */
static float max_logit(const float *logits, i32 classes) {
    vec largest = splat(logits[0]);
    i32 c = 0;
    for (; c + LANES <= classes; c += LANES) {
        vec v = load(logits + c);
        largest = v > largest ? v : largest;
    }
    float one = max_lane(largest);
    for (; c < classes; c++) one = logits[c] > one ? logits[c] : one;
    return one;
}

/* to = exp(logits - largest); returns their sum. `to` may be `logits`. */
static float exp_and_sum(const float *logits, float largest, i32 classes, float *to) {
    vec sums = 0;
    i32 c = 0;
    for (; c + LANES <= classes; c += LANES) {
        vec e = vexp(load(logits + c) - largest);
        store(to + c, e);
        sums += e;
    }
    if (c < classes) store_partial(to + c, vexp(load_partial(logits + c, classes - c) - largest), classes - c);
    float sum = 0;
    for (i32 i = 0; i < LANES; i++) sum += sums[i];
    for (; c < classes; c++) sum += to[c];
    return sum;
}

/* Mean of logits - largest, for label smoothing. */
static double mean_shifted(const float *logits, float largest, i32 classes) {
    dvec sums = 0;
    i32 c = 0;
    for (; c + LANES <= classes; c += LANES) sums += to_double(load(logits + c) - largest);
    double sum = 0;
    for (i32 i = 0; i < LANES; i++) sum += sums[i];
    for (; c < classes; c++) sum += logits[c] - largest;
    return sum / classes;
}

/* Cross-entropy of one image. A label out of range gives NaN, and no memory is accessed with it. */
static double image_loss(const softmax_loss *op, i64 image) {
    const float *logits = op->logits + image * op->ld_logits;
    float *gradient = op->dlogits + image * op->ld_dlogits;
    i32 label = op->labels[image], known = label >= 0 && label < op->classes;
    float logit = known ? logits[label] : __builtin_nanf("");
    float largest = max_logit(logits, op->classes);
    float smoothing = op->smoothing;
    double smoothed = smoothing == 0 ? 0 : smoothing * mean_shifted(logits, largest, op->classes);
    float sum = exp_and_sum(logits, largest, op->classes, gradient);
    float weight = *op->weight / op->batch, factor = weight / sum, all = weight * smoothing / op->classes;
    for (i32 c = 0; c < op->classes; c++) gradient[c] = gradient[c] * factor - all;
    if (known) gradient[label] -= weight * (1 - smoothing);
    return (double)scalar_log(sum) + (1 - smoothing) * ((double)largest - logit) - smoothed;
}

static void run_softmax_loss(worker *w, const void *p) {
    const softmax_loss *op = p;
    double *losses = (double *)w->workspace;
    for (i64 image; (image = next_tile(w)) < op->batch;) losses[image] = image_loss(op, image);
    barrier(w);
    if (w->index != 0) return;
    double sum = 0;
    for (i32 image = 0; image < op->batch; image++) sum += losses[image];
    *op->loss = sum / op->batch;
}

static i64 workspace_softmax_loss(i32 threads, const void *p) {
    (void)threads;
    return ((const softmax_loss *)p)->batch * (i64)sizeof(double);
}
