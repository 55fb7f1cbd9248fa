/* Gradients of parameters out of parts, each over some of the pixels: sums of the same order every time. */

/* The sums by column of a part of the rows: what a bias's gradient is made of. [part][columns]. */
kernel void sum_columns(global const float *dy_buffer, long dy_at, global float *to, long to_at, int rows, int columns, int ld,
                        int rows_each, int parts, int accumulate) {
    int column = get_global_id(0) * WIDTH, part = get_global_id(1), width = columns - column;
    if (width <= 0 || part >= parts) return;
    global const float *from = dy_buffer + dy_at + column;
    VEC sum = 0, v;
    for (int row = part * rows_each; row < min(rows, (part + 1) * rows_each); row++) {
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

/* to[i] (+)= the parts' sum, always in the same order. */
kernel void add_parts(global const float *parts_buffer, long parts_at, global float *to, long to_at, long numbers, int parts,
                      int accumulate) {
    long at = (long)get_global_id(0) * WIDTH;
    if (at >= numbers) return;
    int width = (int)min(numbers - at, (long)WIDTH);
    VEC sum = 0, v;
    to += to_at + at;
    if (accumulate) sum = LOADN(float, to, width);
    for (int part = 0; part < parts; part++) {
        v = LOADN(float, parts_buffer + parts_at + part * numbers + at, width);
        sum += v;
    }
    STOREN(float, to, width, sum);
}
