/* Batch normalization: sums per channel, the statistics from them, and the gradient.
 *
 * Partial sums cover rows_per_part rows each: [part][2][channels]. One work-item sums one channel of one part;
 * neighboring work-items have neighboring channels. A second kernel adds the parts, always in the same order. */

#define ROWS_PER_PARTIAL \
    64 /* rows summed before they are added to the sum of the part, so that float keeps its digits */

/* The mean of each part and the sum of squared deviations from it. These can be merged without losing digits even if
 * the mean is large compared with the spread; sums of squares could not. */
kernel void batch_norm_statistics(global const Z *z_buffer, long z_at, global float *parts_buffer, long parts_at,
                                  int rows, int channels, int ld_z, int rows_per_part, int part_count) {
    int c = get_global_id(0), part = get_global_id(1);
    if (c >= channels || part >= part_count) return;
    global const Z *z = z_buffer + z_at + c;
    int row = part * rows_per_part, end = min(rows, row + rows_per_part), count = end - row;
    float pivot = LOAD(Z, z, row * ld_z), sum = 0, squares = 0;
    while (row < end) {
        int stop = min(end, row + ROWS_PER_PARTIAL);
        float partial = 0, partial_squares = 0;
        for (; row < stop; row++) {
            float d = LOAD(Z, z, row * ld_z) - pivot;
            partial += d;
            partial_squares += d * d;
        }
        sum += partial;
        squares += partial_squares;
    }
    global float *to = parts_buffer + parts_at + part * 2 * channels + c;
    float mean = sum / count;
    to[0] = pivot + mean;
    to[channels] = fmax(0.0f, squares - sum * mean);
}

/* What a fused input applies, from mean and variance. */
static inline void set_scale(float mean, float inv_std, float gamma, float beta, global float *scale,
                             global float *shift) {
    float s = gamma * inv_std;
    *scale = s;
    *shift = beta - mean * s;
}

kernel void batch_norm_merge_statistics(global const float *parts_buffer, long parts_at, int part_count,
                                        int rows_per_part, int rows, global const float *gamma, long gamma_at,
                                        global const float *beta, long beta_at, global float *running_mean,
                                        long running_mean_at, global float *running_var, long running_var_at,
                                        global float *mean_buffer, long mean_at, global float *inv_std, long inv_std_at,
                                        global float *scale, long scale_at, global float *shift, long shift_at,
                                        float epsilon, float momentum, int channels) {
    int c = get_global_id(0);
    if (c >= channels) return;
    global const float *from = parts_buffer + parts_at + c;
    float first = from[0], sum = 0, squares = 0;
    for (int p = 0; p < part_count; p++) {
        float count = min(rows_per_part, rows - p * rows_per_part);
        sum += count * (from[p * 2 * channels] - first);
    }
    float mean = first + sum / rows;
    for (int p = 0; p < part_count; p++) {
        float count = min(rows_per_part, rows - p * rows_per_part), d = from[p * 2 * channels] - mean;
        squares += from[(p * 2 + 1) * channels] + count * d * d;
    }
    float inverse = 1 / sqrt(squares / rows + epsilon);
    mean_buffer[mean_at + c] = mean;
    inv_std[inv_std_at + c] = inverse;
    set_scale(mean, inverse, gamma[gamma_at + c], beta[beta_at + c], scale + scale_at + c, shift + shift_at + c);
    if (rows == 1) return; /* a single value has no variance */
    running_mean[running_mean_at + c] += momentum * (mean - running_mean[running_mean_at + c]);
    running_var[running_var_at + c] += momentum * (squares / (rows - 1) - running_var[running_var_at + c]);
}

/* For evaluation: scale and shift from the running statistics. */
kernel void batch_norm_fold(global const float *gamma, long gamma_at, global const float *beta, long beta_at,
                            global const float *running_mean, long running_mean_at, global const float *running_var,
                            long running_var_at, global float *mean, long mean_at, global float *inv_std,
                            long inv_std_at, global float *scale, long scale_at, global float *shift, long shift_at,
                            float epsilon, int channels) {
    int c = get_global_id(0);
    if (c >= channels) return;
    float mean_value = running_mean[running_mean_at + c], inverse = 1 / sqrt(running_var[running_var_at + c] + epsilon);
    mean[mean_at + c] = mean_value;
    inv_std[inv_std_at + c] = inverse;
    set_scale(mean_value, inverse, gamma[gamma_at + c], beta[beta_at + c], scale + scale_at + c, shift + shift_at + c);
}

/* ---- backward ---- */

/* Sums of g and of g (z - mean), where g is the gradient behind the activation of scale z + shift. */
kernel void batch_norm_gradient_sums(global const float *g_buffer, long g_at, global const Z *z_buffer, long z_at,
                                     global const float *mean_buffer, long mean_at, global const float *scale_buffer,
                                     long scale_at, global const float *shift_buffer, long shift_at,
                                     global float *parts_buffer, long parts_at, int rows, int channels, int ld_g,
                                     int ld_z, int act, int rows_per_part, int part_count) {
    int c = get_global_id(0), part = get_global_id(1);
    if (c >= channels || part >= part_count) return;
    global const float *g = g_buffer + g_at + c;
    global const Z *z = z_buffer + z_at + c;
    float mean = mean_buffer[mean_at + c], scale = scale_buffer[scale_at + c], shift = shift_buffer[shift_at + c];
    float sum = 0, products = 0;
    int row = part * rows_per_part, end = min(rows, row + rows_per_part);
    while (row < end) {
        int stop = min(end, row + ROWS_PER_PARTIAL);
        float partial = 0, partial_products = 0;
        for (; row < stop; row++) {
            float from = LOAD(Z, z, row * ld_z), v = activation_backward(g[row * ld_g], from * scale + shift, act);
            partial += v;
            partial_products += v * (from - mean);
        }
        sum += partial;
        products += partial_products;
    }
    global float *to = parts_buffer + parts_at + part * 2 * channels + c;
    to[0] = sum;
    to[channels] = products;
}

/* Both sums of all channels are contiguous: [2][channels], in every part and in the result. */
kernel void batch_norm_merge_sums(global const float *parts_buffer, long parts_at, int part_count, global float *sums,
                                  long sums_at, int channels) {
    int i = get_global_id(0);
    if (i >= 2 * channels) return;
    global const float *from = parts_buffer + parts_at + i;
    float sum = 0;
    for (int p = 0; p < part_count; p++) sum += from[p * 2 * channels];
    sums[sums_at + i] = sum;
}

/* With x = (z - mean) inv_std and means over the batch, dz = gamma inv_std (g - mean(g) - x mean(g x)). For each
 * channel that is of_g g + of_z (z - mean) + constant: [3][channels]. */
kernel void batch_norm_coefficients(global const float *sums, long sums_at, global const float *gamma, long gamma_at,
                                    global const float *inv_std_buffer, long inv_std_at, global float *dgamma,
                                    long dgamma_at, global float *dbeta, long dbeta_at, global float *k_buffer,
                                    long k_at, int rows, int channels, int accumulate) {
    int c = get_global_id(0);
    if (c >= channels) return;
    float sum = sums[sums_at + c], products = sums[sums_at + channels + c], inv_std = inv_std_buffer[inv_std_at + c];
    float of_g = gamma[gamma_at + c] * inv_std;
    global float *k = k_buffer + k_at + c;
    k[0] = of_g;
    k[channels] = -of_g * inv_std * inv_std * (products / rows);
    k[2 * channels] = -of_g * (sum / rows);
    dgamma[dgamma_at + c] = (accumulate ? dgamma[dgamma_at + c] : 0) + inv_std * products;
    dbeta[dbeta_at + c] = (accumulate ? dbeta[dbeta_at + c] : 0) + sum;
}

kernel void batch_norm_backward(global const float *k_buffer, long k_at, global const Z *z_buffer, long z_at,
                                global const float *dy_buffer, long dy_at, global float *dz_buffer, long dz_at,
                                global const float *mean_buffer, long mean_at, global const float *scale_buffer,
                                long scale_at, global const float *shift_buffer, long shift_at, int rows, int channels,
                                int ld_z, int ld_dy, int ld_dz, int act) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    global const float *k = k_buffer + k_at + c;
    float z = LOAD(Z, z_buffer + z_at, row * ld_z + c), mean = mean_buffer[mean_at + c];
    float g = activation_backward(dy_buffer[dy_at + row * ld_dy + c],
                                  z * scale_buffer[scale_at + c] + shift_buffer[shift_at + c], act);
    dz_buffer[dz_at + row * ld_dz + c] = k[0] * g + (k[channels] * (z - mean) + k[2 * channels]);
}
