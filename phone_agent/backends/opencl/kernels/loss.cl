/* Softmax and cross-entropy, with their gradient: a work-group takes one image. */

/* Over the work-group, always in the same order; its size is a power of two. All get the result. */
static inline float group_sum(local float *room, float v) {
    int me = get_local_id(0);
    room[me] = v;
    for (int half_ = get_local_size(0) / 2; half_; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < half_) room[me] += room[me + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = room[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}
static inline float group_max(local float *room, float v) {
    int me = get_local_id(0);
    room[me] = v;
    for (int half_ = get_local_size(0) / 2; half_; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < half_) room[me] = fmax(room[me], room[me + half_]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float largest = room[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return largest;
}

/* A label that is no class gives NaN, and touches no memory. NaN in a score shows in the sum of the exponentials. */
kernel void image_losses(global const float *scores_buffer, long scores_at, global const int *labels, long labels_at,
                         global const float *weight_buffer, long weight_at, global float *dscores_buffer, long dscores_at,
                         global float *losses, long losses_at, int batch, int classes, int ld_scores, int ld_dscores,
                         float smoothing, local float *room) {
    int image = get_group_id(0), me = get_local_id(0), size = get_local_size(0);
    global const float *scores = scores_buffer + scores_at + image * ld_scores;
    global float *gradient = dscores_buffer + dscores_at + image * ld_dscores;
    int label = labels[labels_at + image], known = label >= 0 && label < classes;
    float score = known ? scores[label] : NAN;
    float most = -INFINITY, sum = 0, shifted = 0;
    for (int c = me; c < classes; c += size) most = fmax(most, scores[c]);
    most = group_max(room, most);
    for (int c = me; c < classes; c += size) {
        sum += exp(scores[c] - most);
        shifted += scores[c] - most;
    }
    sum = group_sum(room, sum);
    shifted = group_sum(room, shifted);
    float weight = weight_buffer[weight_at] / batch, all = weight * smoothing / classes;
    for (int c = me; c < classes; c += size)
        gradient[c] = exp(scores[c] - most) * (weight / sum) - all - (c == label ? weight * (1 - smoothing) : 0);
    float smoothed = smoothing == 0 ? 0 : smoothing * (shifted / classes);
    if (me == 0) losses[losses_at + image] = log(sum) + (1 - smoothing) * (most - score) - smoothed;
}

kernel void mean_loss(global const float *losses, long losses_at, global float *loss, long loss_at, int batch) {
    if (get_global_id(0)) return;
    float sum = 0;
    for (int image = 0; image < batch; image++) sum += losses[losses_at + image];
    loss[loss_at] = sum / batch;
}
