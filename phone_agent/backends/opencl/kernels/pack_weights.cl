/* Pack the weights of a product in panels: [group][panel][depth][PANEL], zeros beyond the last column. Row (tap,
 * channel) of the depth and column n of a group are element tap * stride_tap + group * stride_group + channel *
 * stride_row + n * stride_column. */
typedef struct {
    int groups, panels, depth, columns, channels, taps_w, first_h, first_w, step_h, step_w, kernel_w;
    int stride_tap, stride_group, stride_row, stride_column;
} pack_params;

kernel void pack_weights(pack_params q, global const float *weights, long weights_at, global float *packed,
                         long packed_at) {
    int k0 = get_global_id(0) * ROWS_PER_ITEM, panel = get_global_id(1), group = get_global_id(2);
    int columns = min(PANEL, q.columns - panel * PANEL);
    global const float *from =
        weights + weights_at + (long)group * q.stride_group + (long)panel * PANEL * q.stride_column;
    global float *to = packed + packed_at + ((long)group * q.panels + panel) * q.depth * PANEL;
    for (int k = k0; k < min(k0 + ROWS_PER_ITEM, q.depth); k++) {
        int tap = k / q.channels, c = k - tap * q.channels, h = tap / q.taps_w, w = tap - h * q.taps_w;
        long kernel_tap = (q.first_h + h * q.step_h) * q.kernel_w + q.first_w + w * q.step_w;
        global const float *row = from + kernel_tap * q.stride_tap + (long)c * q.stride_row;
        for (int n = 0; n < PANEL; n++) to[(long)k * PANEL + n] = n < columns ? row[(long)n * q.stride_column] : 0;
    }
}
