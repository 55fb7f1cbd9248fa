/* Gradients of parameters from partial sums, each over a part of the pixels. The order of summation is always the
 * same. */

/* Sums per column over a part of the rows, for the gradient of a bias: [part][columns]. */
kernel void partial_column_sums(global const float *dy_buffer, long dy_at, global float *to, long to_at, int rows,
                                int columns, int ld, int rows_per_part, int parts, int accumulate) {
    int column = get_global_id(0) * WIDTH, part = get_global_id(1), width = columns - column;
    if (width <= 0 || part >= parts) return;
    global const float *from = dy_buffer + dy_at + column;
    VEC sum = 0, v;
    for (int row = part * rows_per_part; row < min(rows, (part + 1) * rows_per_part); row++) {
        v = LOADN(float, from + (long)row * ld, width);
        sum += v;
    }
    to += to_at + (long)part * columns + column;
    if (accumulate) {
        v = LOADN(float, to, width);
        sum += v;
    }
    STOREN(float, to, width, sum);
}

/* to[i] (+)= sum over the parts, always in the same order. */
kernel void reduce_partials(global const float *parts_buffer, long parts_at, global float *to, long to_at,
                            long elements, int parts, int accumulate) {
    long at = (long)get_global_id(0) * WIDTH;
    if (at >= elements) return;
    int width = (int)min(elements - at, (long)WIDTH);
    VEC sum = 0, v;
    to += to_at + at;
    if (accumulate) sum = LOADN(float, to, width);
    for (int part = 0; part < parts; part++) {
        v = LOADN(float, parts_buffer + parts_at + part * elements + at, width);
        sum += v;
    }
    STOREN(float, to, width, sum);
}
