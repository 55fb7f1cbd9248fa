/* Residual connections, and gradients added or copied to another tensor. */

/* y = act(a + b); without `both`, y = act(a). */
kernel void add_forward(INPUT(A, a), INPUT(B, b), global Y *y_buffer, long y_at, int rows, int channels, int ld_y,
                        int act, int both) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_INPUT(A, a);
    OPEN_INPUT(B, b);
    float v = LOAD_INPUT(A, a, row, c);
    if (both) v += LOAD_INPUT(B, b, row, c);
    STORE(Y, y_buffer + y_at, row * ld_y + c, activate(v, act));
}

/* target (+)= dy * act'(y). */
kernel void add_backward(global const float *dy_buffer, long dy_at, global const Y *y_buffer, long y_at,
                         global float *target_buffer, long target_at, int rows, int channels, int ld_dy, int ld_y,
                         int ld_target, int act, int accumulate) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    global float *target = target_buffer + target_at + row * ld_target + c;
    float g = dy_buffer[dy_at + row * ld_dy + c];
    if (act != ACT_NONE) g = activation_backward(g, LOAD(Y, y_buffer + y_at, row * ld_y + c), act);
    *target = accumulate ? *target + g : g;
}
