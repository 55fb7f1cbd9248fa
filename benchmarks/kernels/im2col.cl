/* Convolution as in Caffe and Darknet: the im2col matrix is stored, and a library multiplies it. */

typedef struct {
    int batch, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, stride, pad_h, pad_w, dilation, groups;
} geometry;

/* Work-items: taps, output pixels. columns[pixel][tap][channel] of one group, with the fused operation applied. */
kernel void im2col(geometry g, INPUT(X, x), global float *columns, long columns_at, int group) {
    OPEN_INPUT(X, x);
    int tap = get_global_id(0), row = get_global_id(1), channels = g.in_c / g.groups, c0 = group * channels;
    if (tap >= g.kernel_h * g.kernel_w || row >= g.batch * g.out_h * g.out_w) return;
    int image = row / (g.out_h * g.out_w), y = row / g.out_w % g.out_h, left = row % g.out_w;
    y = y * g.stride - g.pad_h + tap / g.kernel_w * g.dilation;
    left = left * g.stride - g.pad_w + tap % g.kernel_w * g.dilation;
    global float *to = columns + columns_at + ((long)row * g.kernel_h * g.kernel_w + tap) * channels;
    bool inside = y >= 0 && y < g.in_h && left >= 0 && left < g.in_w;
    global const X *from = x + (((long)image * g.in_h + y) * g.in_w + left) * x_ld + c0;
    int c = 0;
    for (; c + WIDTH <= channels; c += WIDTH) {
        VEC v = 0;
        if (inside) {
            v = LOADV(X, from + c);
            if (x_has_affine) v = activate_v(v * loadv_float(x_scale + c0 + c) + loadv_float(x_shift + c0 + c), x_act);
        }
        storev_float(to + c, v);
    }
    for (; c < channels; c++)
        to[c] = inside ? apply_affine(LOAD(X, from, c), x_has_affine, x_scale, x_shift, c0 + c, x_act) : 0;
}

/* Work-items: vectors of channels, input pixels. Sums the gradients of a pixel from all windows that contain it. */
kernel void col2im(geometry g, global const float *columns, long columns_at, GRADIENT(Y, dx), int group) {
    OPEN_GRADIENT(Y, dx);
    int channels = g.in_c / g.groups, c = get_global_id(0) * WIDTH, row = get_global_id(1), width = channels - c;
    if (width <= 0 || row >= g.batch * g.in_h * g.in_w) return;
    int image = row / (g.in_h * g.in_w), y = row / g.in_w % g.in_h, left = row % g.in_w, taps = g.kernel_h * g.kernel_w;
    VEC sum = 0;
    for (int tap = 0; tap < taps; tap++) {
        int oy = y + g.pad_h - tap / g.kernel_w * g.dilation, ox = left + g.pad_w - tap % g.kernel_w * g.dilation;
        if (oy < 0 || ox < 0 || oy % g.stride || ox % g.stride || oy / g.stride >= g.out_h || ox / g.stride >= g.out_w)
            continue;
        long from = ((long)image * g.out_h + oy / g.stride) * g.out_w + ox / g.stride;
        sum += LOADN(float, columns + columns_at + (from * taps + tap) * channels + c, width);
    }
    int channel = group * channels + c;
    global float *to = dx + (long)row * dx_ld + channel;
    if (dx_accumulate) sum += LOADN(float, to, width);
    if (dx_act != ACT_NONE) {
        VEC z = LOADN(Y, dx_y + (long)row * dx_ld_y + channel, width);
        if (dx_has_norm) z = z * LOADN(float, dx_scale + channel, width) + LOADN(float, dx_shift + channel, width);
        sum = activation_backward_v(sum, z, dx_act);
    }
    STOREN(float, to, width, sum);
}

/* Work-items: vectors of channels, rows. y = act(y + bias), in place. */
kernel void bias_activation(global Y *y, long y_at, global const float *bias, long bias_at, int rows, int channels,
                            int ld, int act, int has_bias) {
    int c = get_global_id(0) * WIDTH, row = get_global_id(1), width = channels - c;
    if (width <= 0 || row >= rows) return;
    global Y *at = y + y_at + (long)row * ld + c;
    VEC v = LOADN(Y, at, width);
    if (has_bias) v += LOADN(float, bias + bias_at + c, width);
    STOREN(Y, at, width, activate_v(v, act));
}
