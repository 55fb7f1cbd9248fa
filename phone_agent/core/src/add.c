/* Residual connections: y = act(a + b), and its gradient. Memory-bound passes over whole tensors. */

enum {
    ADD_TILE_FLOATS = 16 * 1024
}; /* floats per tile: enough to hide the cost of scheduling, few enough to balance the threads */

INLINE i64 add_tile_rows(i32 channels) { return MAX(1, ADD_TILE_FLOATS / channels); }

enum { MIXED_DTYPES = -1 }; /* in place of a dtype: the tensors have different dtypes */

INLINE vec load_affine(const fused_input *x, i64 row, i32 c, i32 lanes, vec scale, vec shift, i32 dtype) {
    if (dtype == MIXED_DTYPES) dtype = x->dtype;
    const void *from = element_at(x->data, row * x->ld + c, dtype);
    vec v = load_as_fp32(from, lanes, dtype);
    prefetch_page_ahead(from);
    return x->scale ? activate(v * scale + shift, x->act) : v;
}

INLINE void add_group(i64 row, i32 rows, i32 c, i32 lanes, const add_forward *op, i32 two, i32 dtype) {
    i32 y_dtype = dtype == MIXED_DTYPES ? op->dtype : dtype;
    vec scale_a = 0, shift_a = 0, scale_b = 0, shift_b = 0;
    if (op->a.scale) scale_a = load_lanes(op->a.scale + c, lanes), shift_a = load_lanes(op->a.shift + c, lanes);
    if (two && op->b.scale) scale_b = load_lanes(op->b.scale + c, lanes), shift_b = load_lanes(op->b.shift + c, lanes);
    for (i32 r = 0; r < rows; r++) {
        vec v = load_affine(&op->a, row + r, c, lanes, scale_a, shift_a, dtype);
        if (two) v += load_affine(&op->b, row + r, c, lanes, scale_b, shift_b, dtype);
        void *to = element_at(op->y, (row + r) * op->ld_y + c, y_dtype);
        prefetch_page_ahead(to);
        store_from_fp32(to, activate(v, op->act), lanes, y_dtype);
    }
}

INLINE void add_as(worker *w, const add_forward *from, i32 dtype) {
    add_forward op = *from;
    i64 each = add_tile_rows(op.channels);
    for (i64 row; (row = next_tile(w) * each) < op.rows;) {
        i64 end = MIN(op.rows, row + each);
        if (op.b.data) FOR_ROWS_AND_CHANNELS(row, end, op.channels, add_group, &op, 1, dtype);
        else FOR_ROWS_AND_CHANNELS(row, end, op.channels, add_group, &op, 0, dtype);
    }
}

static void run_add_forward(worker *w, const void *p) {
    const add_forward *op = p;
    if (op->a.dtype != op->dtype || (op->b.data && op->b.dtype != op->dtype)) add_as(w, op, MIXED_DTYPES);
    else if (op->dtype == FP16) add_as(w, op, FP16);
    else add_as(w, op, FP32);
}

static i64 workspace_add_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

INLINE void add_backward_group(i64 row, i32 rows, i32 c, i32 lanes, const add_backward *op, i32 dtype) {
    for (i32 r = 0; r < rows; r++) {
        const float *dy = op->dy + (row + r) * op->ld_dy + c;
        const void *y = element_at(op->y, (row + r) * op->ld_y + c, dtype);
        float *to = op->target + (row + r) * op->ld_target + c;
        prefetch_page_ahead(dy);
        prefetch_page_ahead(to);
        vec g = load_lanes(dy, lanes);
        if (op->act != ACT_NONE) {
            g = activation_backward(g, load_as_fp32(y, lanes, dtype), op->act);
            prefetch_page_ahead(y);
        }
        store_lanes(to, op->accumulate ? load_lanes(to, lanes) + g : g, lanes);
    }
}

static void run_add_backward(worker *w, const void *p) {
    add_backward op = *(const add_backward *)p;
    i64 each = add_tile_rows(op.channels);
    for (i64 row; (row = next_tile(w) * each) < op.rows;) {
        i64 end = MIN(op.rows, row + each);
        if (op.dtype == FP16) FOR_ROWS_AND_CHANNELS(row, end, op.channels, add_backward_group, &op, FP16);
        else FOR_ROWS_AND_CHANNELS(row, end, op.channels, add_backward_group, &op, FP32);
    }
}

static i64 workspace_add_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
