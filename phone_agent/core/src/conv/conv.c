/* Convolution of any geometry, in three directions, as matrix products without a stored im2col matrix (implicit
 * GEMM).
 *
 * Forward: rows are output pixels, columns output channels, depth (tap, input channel). Backward data is the same on
 * dy: rows are input pixels, columns input channels, depth (tap, output channel). With a stride, the input pixels
 * fall into stride x stride phases that different taps reach; each phase is its own product, so no zeros are
 * multiplied. Backward weights: rows are (tap, input channel), columns output channels, depth pixels
 * (weight_gradient.c). */

static conv_gemm plan_forward(const void *op, i32 phase, i32 threads, float *panels) {
    (void)phase;
    const conv_forward *o = op;
    const geometry *g = &o->g;
    i32 in = g->in_c / g->groups, out = g->out_c / g->groups;
    conv_gemm p = {.view = forward_view(g, o->x), .columns = out, .groups = g->groups, .panels = panels};
    p.weights = (weight_matrix){o->weights, (i64)in * g->out_c, out, g->out_c, 1, g->kernel_w};
    choose_blocking(&p, threads);
    return p;
}

static conv_gemm plan_backward_data(const void *op, i32 phase, i32 threads, float *panels) {
    const conv_backward_data *o = op;
    const geometry *g = &o->g;
    i32 in = g->in_c / g->groups, out = g->out_c / g->groups;
    axis h = backward_axis(g->in_h, g->out_h, g->kernel_h, g->stride, g->pad_h, g->dilation, phase / g->stride);
    axis w = backward_axis(g->in_w, g->out_w, g->kernel_w, g->stride, g->pad_w, g->dilation, phase % g->stride);
    fused_input dy = {.data = o->dy, .ld = o->ld_dy};
    conv_gemm p = {
        .view = im2col_view_of(dy, h, w, g->batch, out), .columns = in, .groups = g->groups, .panels = panels};
    p.weights = (weight_matrix){o->weights, (i64)in * g->out_c, out, 1, g->out_c, g->kernel_w};
    choose_blocking(&p, threads);
    return p;
}

static i64 workspace_conv_forward(i32 threads, const void *p) {
    const conv_forward *op = p;
    if (op->algorithm != DIRECT) return winograd_workspace_forward(threads, op);
    return gemm_workspace(plan_forward, op, 1, threads);
}

static void run_conv_forward(worker *w, const void *p) {
    const conv_forward *op = p;
    if (op->algorithm != DIRECT) {
        winograd_forward(w, op);
        return;
    }
    if (op->norm) batch_norm_clear_sums(op->norm, w);
    run_conv_gemm(w, plan_forward, op, 1, (epilogue){.forward = op});
    if (!op->norm) return;
    barrier(w);
    batch_norm_finish_statistics(op->norm, w, (i64)op->g.batch * op->g.out_h * op->g.out_w);
}

static i64 workspace_conv_backward_data(i32 threads, const void *p) {
    const conv_backward_data *op = p;
    if (op->algorithm != DIRECT) return winograd_workspace_backward_data(threads, op);
    return gemm_workspace(plan_backward_data, op, op->g.stride * op->g.stride, threads);
}

static void run_conv_backward_data(worker *w, const void *p) {
    const conv_backward_data *op = p;
    if (op->algorithm != DIRECT) {
        winograd_backward_data(w, op);
        return;
    }
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    run_conv_gemm(w, plan_backward_data, op, op->g.stride * op->g.stride, (epilogue){.gradient = &op->dx});
}

static i64 workspace_conv_backward_weights(i32 threads, const void *p) {
    const conv_backward_weights *op = p;
    if (op->algorithm != DIRECT) return winograd_workspace_backward_weights(threads, op);
    weight_gradient g = plan_wgrad(op, threads);
    i64 slice_results = g.slices > 1 ? wgrad_blocks(&g) * g.slices * result_floats(&g) : 0;
    return ((i64)threads * WGRAD_FLOATS + slice_results) * (i64)sizeof(float);
}

static void run_conv_backward_weights(worker *w, const void *p) {
    const conv_backward_weights *op = p;
    if (op->algorithm != DIRECT) winograd_backward_weights(w, op);
    else run_wgrad(w, op);
}
