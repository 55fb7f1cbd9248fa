/* Weights of a product in panels: [group][panel][depth][PANEL], zeros beyond the last column. Row (run, channel) of the depth
 * and column n of a group are number tap * step_tap + group * step_group + channel * step_row + n * step_column. */
typedef struct {
    int groups, panels, depth, columns, channels, taps_w, first_h, first_w, step_h, step_w, kernel_w;
    int step_tap, step_group, step_row, step_column;
} packing;

kernel void pack_weights(packing q, global const float *weights, long weights_at, global float *packed, long packed_at) {
    int k0 = get_global_id(0) * PACK, panel = get_global_id(1), group = get_global_id(2);
    int columns = min(PANEL, q.columns - panel * PANEL);
    global const float *from = weights + weights_at + (long)group * q.step_group + (long)panel * PANEL * q.step_column;
    global float *to = packed + packed_at + ((long)group * q.panels + panel) * q.depth * PANEL;
    for (int k = k0; k < min(k0 + PACK, q.depth); k++) {
        int tap = k / q.channels, c = k - tap * q.channels, h = tap / q.taps_w, w = tap - h * q.taps_w;
        long kernel_tap = (q.first_h + h * q.step_h) * q.kernel_w + q.first_w + w * q.step_w;
        global const float *row = from + kernel_tap * q.step_tap + (long)c * q.step_row;
        for (int n = 0; n < PANEL; n++) to[(long)k * PANEL + n] = n < columns ? row[(long)n * q.step_column] : 0;
    }
}
