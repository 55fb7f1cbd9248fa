/* Softmax and cross-entropy, with the gradient: one work-group per image. */

/* Reductions over the work-group, always in the same order; its size is a power of two. All work-items get the
 * result. */
static inline float group_sum(local float *scratch, float v) {
    int local_id = get_local_id(0);
    scratch[local_id] = v;
    for (int half_ = get_local_size(0) / 2; half_; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_id < half_) scratch[local_id] += scratch[local_id + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}
static inline float group_max(local float *scratch, float v) {
    int local_id = get_local_id(0);
    scratch[local_id] = v;
    for (int half_ = get_local_size(0) / 2; half_; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_id < half_) scratch[local_id] = fmax(scratch[local_id], scratch[local_id + half_]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float largest = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return largest;
}

/* A label out of range gives NaN, and no memory is accessed with it. NaN in a logit appears in the sum of the
 * exponentials. */
kernel void softmax_cross_entropy(global const float *logits_buffer, long logits_at, global const int *labels,
                                  long labels_at, global const float *weight_buffer, long weight_at,
                                  global float *dlogits_buffer, long dlogits_at, global float *losses, long losses_at,
                                  int batch, int classes, int ld_logits, int ld_dlogits, float smoothing,
                                  local float *scratch) {
    int image = get_group_id(0), local_id = get_local_id(0), size = get_local_size(0);
    global const float *logits = logits_buffer + logits_at + image * ld_logits;
    global float *gradient = dlogits_buffer + dlogits_at + image * ld_dlogits;
    int label = labels[labels_at + image], known = label >= 0 && label < classes;
    float logit = known ? logits[label] : NAN;
    float largest = -INFINITY, sum = 0, shifted = 0;
    for (int c = local_id; c < classes; c += size) largest = fmax(largest, logits[c]);
    largest = group_max(scratch, largest);
    for (int c = local_id; c < classes; c += size) {
        sum += exp(logits[c] - largest);
        shifted += logits[c] - largest;
    }
    sum = group_sum(scratch, sum);
    shifted = group_sum(scratch, shifted);
    float weight = weight_buffer[weight_at] / batch, all = weight * smoothing / classes;
    for (int c = local_id; c < classes; c += size)
        gradient[c] = exp(logits[c] - largest) * (weight / sum) - all - (c == label ? weight * (1 - smoothing) : 0);
    float smoothed = smoothing == 0 ? 0 : smoothing * (shifted / classes);
    if (local_id == 0) losses[losses_at + image] = log(sum) + (1 - smoothing) * (largest - logit) - smoothed;
}

kernel void mean_loss(global const float *losses, long losses_at, global float *loss, long loss_at, int batch) {
    if (get_global_id(0)) return;
    float sum = 0;
    for (int image = 0; image < batch; image++) sum += losses[losses_at + image];
    loss[loss_at] = sum / batch;
}
