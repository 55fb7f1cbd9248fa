/* Batch normalisation: sums by channel, what follows from them, and the gradient.
 *
 * Sums are made in parts, each over so many rows: [part][2][channels]. One work-item adds up one channel of one part,
 * neighbours take neighbouring channels. A second kernel adds up the parts, always in the same order. */

#define STRETCH 64 /* rows whose sums are added up before they join the part's: float keeps its digits so */

/* The mean of each part and the sum of squares about it. Those two can be merged without losing digits, however large
 * the mean is against the spread; sums of squares could not. */
kernel void count_statistics(global const Z *z_buffer, long z_at, global float *parts_buffer, long parts_at, int rows,
                             int channels, int ld_z, int rows_each, int parts_count) {
    int c = get_global_id(0), part = get_global_id(1);
    if (c >= channels || part >= parts_count) return;
    global const Z *z = z_buffer + z_at + c;
    int row = part * rows_each, end = min(rows, row + rows_each), count = end - row;
    float pivot = LOAD(Z, z, row * ld_z), sum = 0, squares = 0;
    while (row < end) {
        int stop = min(end, row + STRETCH);
        float few = 0, few_squares = 0;
        for (; row < stop; row++) {
            float d = LOAD(Z, z, row * ld_z) - pivot;
            few += d;
            few_squares += d * d;
        }
        sum += few;
        squares += few_squares;
    }
    global float *to = parts_buffer + parts_at + part * 2 * channels + c;
    float mean = sum / count;
    to[0] = pivot + mean;
    to[channels] = fmax(0.0f, squares - sum * mean);
}

/* What a source applies, from mean and variance. */
static inline void set_scale(float mean, float inv_std, float gamma, float beta, global float *scale, global float *shift) {
    float s = gamma * inv_std;
    *scale = s;
    *shift = beta - mean * s;
}

kernel void merge_statistics(global const float *parts_buffer, long parts_at, int parts_count, int rows_each, int rows,
                             global const float *gamma, long gamma_at, global const float *beta, long beta_at,
                             global float *running_mean, long running_mean_at, global float *running_var,
                             long running_var_at, global float *mean_buffer, long mean_at, global float *inv_std,
                             long inv_std_at, global float *scale, long scale_at, global float *shift, long shift_at,
                             float epsilon, float momentum, int channels) {
    int c = get_global_id(0);
    if (c >= channels) return;
    global const float *from = parts_buffer + parts_at + c;
    float first = from[0], sum = 0, squares = 0;
    for (int p = 0; p < parts_count; p++) {
        float count = min(rows_each, rows - p * rows_each);
        sum += count * (from[p * 2 * channels] - first);
    }
    float mean = first + sum / rows;
    for (int p = 0; p < parts_count; p++) {
        float count = min(rows_each, rows - p * rows_each), d = from[p * 2 * channels] - mean;
        squares += from[(p * 2 + 1) * channels] + count * d * d;
    }
    float variance = squares / rows, unbiased = rows > 1 ? squares / (rows - 1) : variance;
    float inverse = 1 / sqrt(variance + epsilon);
    mean_buffer[mean_at + c] = mean;
    inv_std[inv_std_at + c] = inverse;
    set_scale(mean, inverse, gamma[gamma_at + c], beta[beta_at + c], scale + scale_at + c, shift + shift_at + c);
    running_mean[running_mean_at + c] += momentum * (mean - running_mean[running_mean_at + c]);
    running_var[running_var_at + c] += momentum * (unbiased - running_var[running_var_at + c]);
}

/* For evaluation: from the running statistics. */
kernel void fold(global const float *gamma, long gamma_at, global const float *beta, long beta_at,
                 global const float *running_mean, long running_mean_at, global const float *running_var,
                 long running_var_at, global float *mean, long mean_at, global float *inv_std, long inv_std_at,
                 global float *scale, long scale_at, global float *shift, long shift_at, float epsilon, int channels) {
    int c = get_global_id(0);
    if (c >= channels) return;
    float middle = running_mean[running_mean_at + c], inverse = 1 / sqrt(running_var[running_var_at + c] + epsilon);
    mean[mean_at + c] = middle;
    inv_std[inv_std_at + c] = inverse;
    set_scale(middle, inverse, gamma[gamma_at + c], beta[beta_at + c], scale + scale_at + c, shift + shift_at + c);
}

/* --- backward ------------------------------------------------------------------------------------------------ */

/* Sums of g and of g (z - mean), where g is what of a gradient passes the activation of scale z + shift. */
kernel void count_gradients(global const float *g_buffer, long g_at, global const Z *z_buffer, long z_at,
                            global const float *mean_buffer, long mean_at, global const float *scale_buffer,
                            long scale_at, global const float *shift_buffer, long shift_at, global float *parts_buffer,
                            long parts_at, int rows, int channels, int ld_g, int ld_z, int act, int rows_each,
                            int parts_count) {
    int c = get_global_id(0), part = get_global_id(1);
    if (c >= channels || part >= parts_count) return;
    global const float *g = g_buffer + g_at + c;
    global const Z *z = z_buffer + z_at + c;
    float mean = mean_buffer[mean_at + c], scale = scale_buffer[scale_at + c], shift = shift_buffer[shift_at + c];
    float sum = 0, products = 0;
    int row = part * rows_each, end = min(rows, row + rows_each);
    while (row < end) {
        int stop = min(end, row + STRETCH);
        float few = 0, few_products = 0;
        for (; row < stop; row++) {
            float from = LOAD(Z, z, row * ld_z), v = passed(g[row * ld_g], from * scale + shift, act);
            few += v;
            few_products += v * (from - mean);
        }
        sum += few;
        products += few_products;
    }
    global float *to = parts_buffer + parts_at + part * 2 * channels + c;
    to[0] = sum;
    to[channels] = products;
}

/* Both sums of all channels lie one after the other: [2][channels], in every part and in the result. */
kernel void merge_gradients(global const float *parts_buffer, long parts_at, int parts_count, global float *sums,
                            long sums_at, int channels) {
    int i = get_global_id(0);
    if (i >= 2 * channels) return;
    global const float *from = parts_buffer + parts_at + i;
    float sum = 0;
    for (int p = 0; p < parts_count; p++) sum += from[p * 2 * channels];
    sums[sums_at + i] = sum;
}

/* With x = (z - mean) inv_std and means over the batch, dz = gamma inv_std (g - mean(g) - x mean(g x)): for each channel
 * that is of_g g + of_z (z - mean) + constant; [3][channels]. */
kernel void coefficients(global const float *sums, long sums_at, global const float *gamma, long gamma_at,
                         global const float *inv_std_buffer, long inv_std_at, global float *dgamma, long dgamma_at,
                         global float *dbeta, long dbeta_at, global float *k_buffer, long k_at, int rows, int channels,
                         int adding) {
    int c = get_global_id(0);
    if (c >= channels) return;
    float sum = sums[sums_at + c], products = sums[sums_at + channels + c], inv_std = inv_std_buffer[inv_std_at + c];
    float of_g = gamma[gamma_at + c] * inv_std;
    global float *k = k_buffer + k_at + c;
    k[0] = of_g;
    k[channels] = -of_g * inv_std * inv_std * (products / rows);
    k[2 * channels] = -of_g * (sum / rows);
    dgamma[dgamma_at + c] = (adding ? dgamma[dgamma_at + c] : 0) + inv_std * products;
    dbeta[dbeta_at + c] = (adding ? dbeta[dbeta_at + c] : 0) + sum;
}

kernel void spread(global const float *k_buffer, long k_at, global const Z *z_buffer, long z_at,
                   global const float *dy_buffer, long dy_at, global float *dz_buffer, long dz_at,
                   global const float *mean_buffer, long mean_at, global const float *scale_buffer, long scale_at,
                   global const float *shift_buffer, long shift_at, int rows, int channels, int ld_z, int ld_dy,
                   int ld_dz, int act) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    global const float *k = k_buffer + k_at + c;
    float z = LOAD(Z, z_buffer + z_at, row * ld_z + c), mean = mean_buffer[mean_at + c];
    float g = passed(dy_buffer[dy_at + row * ld_dy + c], z * scale_buffer[scale_at + c] + shift_buffer[shift_at + c], act);
    dz_buffer[dz_at + row * ld_dz + c] = k[0] * g + (k[channels] * (z - mean) + k[2 * channels]);
}
