/* The product of gathered rows and packed weights: blocking, packing, and the loops around the microkernel. */

/* The weights as a matrix: row (tap, channel), column n of a group. One of the two strides is 1. */
typedef struct {
    const float *data;
    i64 tap, group, row, column;
    i32 kernel_w;
} weight_matrix;

/* A product and its blocking. A work item is some row blocks, one after the other, x one column block x one group. */
typedef struct {
    im2col_view view;
    weight_matrix weights;
    i32 columns, groups;
    i32 block_tiles, row_blocks, blocks_per_item, block_panels, column_blocks;
    i64 block_depth, depth_blocks;
    i32 private_packing; /* each thread packs the weights that it needs, because hardly any other thread uses them */
    float *panels;       /* all packed weights, if threads share them */
} conv_gemm;

static i64 gemm_items(const conv_gemm *p) {
    return p->row_blocks ? (i64)p->groups * CEIL_DIV(p->row_blocks, p->blocks_per_item) * p->column_blocks : 0;
}
static i64 shared_panel_floats(const conv_gemm *p) {
    return p->private_packing ? 0 : p->groups * p->view.depth * padded_columns(p->columns);
}

/* Cost of one block in tenths of a tile product: the products, gathering a tile of rows, loading a panel. */
static i64 block_cost(i64 tiles, i64 panels) { return 10 * tiles * panels + 4 * tiles + 5 * panels; }
/* Cost of packing a panel: by all threads beforehand, or by the thread that needs it, with prefetched weights. */
enum { PACK_COST = 80, PRIVATE_PACK_COST = 40 };

enum { MAX_BLOCKS_PER_ITEM = 8 };

/* Try blocks of `block_tiles` tiles of rows x `block_panels` panels; keep them if they cost less than *best. */
static void try_blocking(conv_gemm *p, i32 tiles, i32 panels, i32 block_tiles, i32 block_panels, i32 private_packing,
                         i32 threads, i64 *best) {
    i64 blocks = (i64)p->groups * CEIL_DIV(tiles, block_tiles) * CEIL_DIV(panels, block_panels);
    i64 cost = block_cost(block_tiles, block_panels) + (private_packing ? PRIVATE_PACK_COST * block_panels : 0);
    cost = CEIL_DIV(blocks, threads) * cost +
           (private_packing ? 0 : CEIL_DIV((i64)PACK_COST * panels * p->groups, threads));
    if (*best >= 0 && cost >= *best) return;
    *best = cost;
    p->block_tiles = block_tiles;
    p->block_panels = block_panels;
    p->private_packing = private_packing;
}

/* Choose the blocking that keeps all threads busy and blocks large. */
static void choose_blocking(conv_gemm *p, i32 threads) {
    i32 tiles = (i32)CEIL_DIV(p->view.rows, MR), panels = panel_count(p->columns);
    p->depth_blocks = MAX(1, CEIL_DIV(p->view.depth, BLOCK_DEPTH));
    p->block_depth = ROUND_UP(CEIL_DIV(p->view.depth, p->depth_blocks), 8);
    p->private_packing = 1;
    if (tiles == 0) return; /* a phase outside the image: no items */
    i64 best = -1;
    if (tiles * MR <= PRIVATE_BLOCK_ROWS)
        for (i32 blocks = CEIL_DIV(panels, PRIVATE_BLOCK_COLUMNS / NR); blocks <= panels; blocks++)
            try_blocking(p, tiles, panels, tiles, CEIL_DIV(panels, blocks), 1, threads, &best);
    i32 max_panels = MIN(panels, p->depth_blocks > 1 ? BLOCK_COLUMNS / NR : panels);
    for (i32 rows = CEIL_DIV(tiles, BLOCK_ROWS / MR), i = 0; rows <= tiles && i < 8 * threads; rows++, i++)
        for (i32 blocks = CEIL_DIV(panels, max_panels); blocks <= panels; blocks *= 2)
            try_blocking(p, tiles, panels, CEIL_DIV(tiles, rows), CEIL_DIV(panels, blocks), 0, threads, &best);
    p->row_blocks = CEIL_DIV(tiles, p->block_tiles);
    p->column_blocks = CEIL_DIV(panels, p->block_panels);
    p->blocks_per_item = MAX(1, MIN(MAX_BLOCKS_PER_ITEM, p->row_blocks / (8 * threads)));
}

/* Row k of the weights, column 0. */
static const float *weight_row(const conv_gemm *p, i32 group, i64 k) {
    const weight_matrix *m = &p->weights;
    const axis *h = &p->view.h, *w = &p->view.w;
    i32 tap = (i32)(k / p->view.channels), c = (i32)(k % p->view.channels);
    i64 kernel = (i64)(h->first + tap / w->taps * h->step) * m->kernel_w + w->first + tap % w->taps * w->step;
    return m->data + kernel * m->tap + group * m->group + c * m->row;
}

/* Pack rows k0 .. k0 + depth - 1 of some panels, starting at row k_to of panels with `panel_depth` rows. */
static void pack_weights(const conv_gemm *p, i32 group, i64 k0, i64 depth, i32 panel0, i32 panels, float *to,
                         i64 panel_depth, i64 k_to) {
    const weight_matrix *m = &p->weights;
    for (i64 k = k0; k < k0 + depth;) {
        i32 count = (i32)MIN(p->view.channels - k % p->view.channels, k0 + depth - k);
        const float *from = weight_row(p, group, k);
        for (i32 panel = 0; panel < panels; panel++) {
            i32 n = (panel0 + panel) * NR, width = panel_width(p->columns, panel0 + panel),
                used = MIN(width, p->columns - n);
            float *at = to + (i64)panel * NR * panel_depth + (k - k0 + k_to) * width;
            if (m->row == 1) pack_transposed_panel(from + n * m->column, m->column, used, count, at, width);
            else
                for (i32 i = 0; i < count; i++) copy_padded(from + i * m->row + n, used, at + (i64)i * width, width);
        }
        k += count;
    }
}

enum { PACK_ROWS_PER_ITEM = 64 };

static i64 pack_items(const conv_gemm *p) {
    return p->private_packing ? 0 : p->groups * CEIL_DIV(p->view.depth, PACK_ROWS_PER_ITEM);
}

static void pack_item(const conv_gemm *p, i64 item) {
    i64 pieces = CEIL_DIV(p->view.depth, PACK_ROWS_PER_ITEM), k0 = item % pieces * PACK_ROWS_PER_ITEM;
    i32 group = (i32)(item / pieces);
    float *to = p->panels + group * p->view.depth * padded_columns(p->columns);
    pack_weights(p, group, k0, MIN(PACK_ROWS_PER_ITEM, p->view.depth - k0), 0, panel_count(p->columns), to,
                 p->view.depth, k0);
}

/* The private memory of a thread. */
typedef struct {
    float *rows, *results, *panels;
} gemm_scratch;

enum {
    SCRATCH_ROWS = MAX(PRIVATE_BLOCK_ROWS, BLOCK_ROWS) * LDA,
    SCRATCH_RESULTS = MAX(PRIVATE_BLOCK_ROWS * (PRIVATE_BLOCK_COLUMNS + LANES), BLOCK_ROWS *(BLOCK_COLUMNS + LANES)),
    SCRATCH_PANELS = PRIVATE_BLOCK_COLUMNS * ROUND_UP(BLOCK_DEPTH, 8),
    SCRATCH_FLOATS = ROUND_UP(SCRATCH_ROWS + SCRATCH_RESULTS + SCRATCH_PANELS, 16),
};

static gemm_scratch gemm_scratch_of(const worker *w, float *all) {
    float *mine = all + (i64)w->index * SCRATCH_FLOATS;
    return (gemm_scratch){mine, mine + SCRATCH_ROWS, mine + SCRATCH_ROWS + SCRATCH_RESULTS};
}

/* What happens to the results. Exactly one is set. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *gradient;
} epilogue;

static void apply_epilogue(const epilogue *epi, const worker *w, const row_list *rows, const float *tile, i32 ld,
                           i32 c0, i32 channels) {
    if (epi->forward) store_output_tile(epi->forward, w, tile, ld, rows->target[0], rows->count, c0, channels);
    else store_gradient_tile(epi->gradient, w, tile, ld, rows->target, rows->count, c0, channels);
}

/* Prefetch what the epilogue of this block will touch and what the next block will gather. */
static prefetch_list prefetch_block(const conv_gemm *p, const epilogue *epi, i32 column_block, i64 row0, i32 count,
                                    i32 next) {
    enum { MAX_PREFETCH_FLOATS = 1 << 16 };
    prefetch_list prefetch = {0};
    if (p->groups == 1 && p->view.w.to_step == 1) {
        const conv_forward *f = epi->forward;
        const fused_gradient *s = epi->gradient;
        i64 c0 = (i64)column_block * p->block_panels * NR, columns = MIN(p->block_panels * NR, p->columns - c0);
        if (f)
            prefetch_columns(&prefetch, element_at(f->y, row0 * f->ld_y + c0, f->dtype), count, columns, f->ld_y,
                             f->dtype);
        if (s) prefetch_columns(&prefetch, s->data + row0 * s->ld + c0, count, columns, s->ld, FP32);
        if (s && s->act != ACT_NONE)
            prefetch_columns(&prefetch, element_at(s->y, row0 * s->ld_y + c0, s->dtype), count, columns, s->ld_y,
                             s->dtype);
    }
    const fused_input *x = &p->view.x;
    if (p->view.pointwise && (i64)next * x->ld <= MAX_PREFETCH_FLOATS)
        prefetch_elements(&prefetch, element_at(x->data, (row0 + count) * x->ld, x->dtype), (i64)next * x->ld,
                          x->dtype);
    return prefetch;
}

/* Prefetch the weights that the next depth block will pack. */
static void prefetch_weights(const conv_gemm *p, i32 group, i64 k0, i32 n0, i32 columns, prefetch_list *prefetch) {
    const weight_matrix *m = &p->weights;
    i64 depth = MIN(p->block_depth, p->view.depth - k0);
    if (depth <= 0) return;
    i32 c = (i32)(k0 % p->view.channels);
    const float *from = weight_row(p, group, k0) + n0 * m->column;
    depth = MIN(depth, p->view.channels - c);
    if (m->row == 1) prefetch_matrix(prefetch, from, columns, depth, m->column, FP32);
    else prefetch_matrix(prefetch, from, depth, columns, m->row, FP32);
}

static void gemm_block(const conv_gemm *p, const epilogue *epi, const worker *w, gemm_scratch b, i32 group,
                       i32 column_block, i64 row0, i32 count, prefetch_list prefetch) {
    enum { PANELS_PER_PASS = BLOCK_COLUMNS / NR };
    i64 depth = p->view.depth;
    i32 tiles = CEIL_DIV(count, MR), panel0 = column_block * p->block_panels;
    i32 panels = MIN(p->block_panels, panel_count(p->columns) - panel0), ld = MIN(panels, PANELS_PER_PASS) * NR + LANES;
    const fused_input *x = &p->view.x;
    /* Rows can be multiplied in place, without gathering. */
    i32 in_place = p->view.pointwise && !x->scale && x->dtype == FP32 && count % MR == 0;
    row_list rows;
    locate_rows(&p->view, row0, count, &rows);
    memset(b.rows + (i64)count * LDA, 0, (u64)(tiles * MR - count) * LDA * sizeof(float));
    for (i64 block = 0; block < p->depth_blocks; block++) {
        i64 k0 = block * p->block_depth, k = MAX(0, MIN(p->block_depth, depth - k0));
        const float *a = in_place ? (const float *)x->data + row0 * x->ld + group * p->view.channels + k0 : b.rows;
        if (!in_place) gather_rows(&p->view, &rows, group, k0, k, b.rows, LDA);
        if (p->private_packing) {
            pack_weights(p, group, k0, k, panel0, panels, b.panels, k, 0);
            prefetch = (prefetch_list){0};
            prefetch_weights(p, group, k0 + k, panel0 * NR, MIN(panels * NR, p->columns - panel0 * NR), &prefetch);
        }
        for (i32 i = 0; i < panels; i++) {
            i32 width = panel_width(p->columns, panel0 + i), n = (panel0 + i) * NR, slot = i % PANELS_PER_PASS;
            const float *panel = p->private_packing
                                     ? b.panels + i * NR * k
                                     : p->panels + group * depth * padded_columns(p->columns) + n * depth + k0 * width;
            gemm_panel(tiles, k, a, in_place ? x->ld : LDA, panel, width, b.results + slot * NR, ld, block > 0,
                       &prefetch);
            if (block + 1 < p->depth_blocks || (slot + 1 < PANELS_PER_PASS && i + 1 < panels)) continue;
            i32 first = n - slot * NR;
            apply_epilogue(epi, w, &rows, b.results, ld, group * p->columns + first,
                           MIN((slot + 1) * NR, p->columns - first));
        }
    }
}

static void gemm_item(const conv_gemm *p, const epilogue *epi, const worker *w, gemm_scratch b, i64 item) {
    i32 column_block = (i32)(item % p->column_blocks), item_rows = p->blocks_per_item * p->block_tiles * MR;
    i64 spans = CEIL_DIV(p->row_blocks, p->blocks_per_item), span = item / p->column_blocks % spans;
    i32 group = (i32)(item / p->column_blocks / spans);
    i64 end = MIN((span + 1) * item_rows, p->view.rows);
    for (i64 row = span * item_rows; row < end;) {
        i32 count = (i32)MIN((i64)p->block_tiles * MR, end - row),
            next = (i32)MIN((i64)p->block_tiles * MR, end - row - count);
        gemm_block(p, epi, w, b, group, column_block, row, count,
                   prefetch_block(p, epi, column_block, row, count, next));
        row += count;
    }
}

/* One product, or one for each phase of a stride. `plan` describes each; its packed weights are at `panels`. */
typedef conv_gemm (*conv_planner)(const void *op, i32 phase, i32 threads, float *panels);

static i64 gemm_workspace(conv_planner plan, const void *op, i32 phases, i32 threads) {
    i64 floats = (i64)threads * SCRATCH_FLOATS;
    for (i32 phase = 0; phase < phases; phase++) {
        conv_gemm p = plan(op, phase, threads, 0);
        floats += shared_panel_floats(&p);
    }
    return floats * (i64)sizeof(float);
}

static void pack_all_weights(worker *w, conv_planner plan, const void *op, i32 phases, float *panels) {
    i64 item = next_tile(w), first = 0;
    for (i32 phase = 0; phase < phases; phase++) {
        conv_gemm p = plan(op, phase, w->threads, panels);
        for (; item < first + pack_items(&p); item = next_tile(w)) pack_item(&p, item - first);
        first += pack_items(&p);
        panels += shared_panel_floats(&p);
    }
}

static void run_conv_gemm(worker *w, conv_planner plan, const void *op, i32 phases, epilogue epi) {
    float *panels = (float *)w->workspace + (i64)w->threads * SCRATCH_FLOATS;
    pack_all_weights(w, plan, op, phases, panels);
    barrier(w);
    gemm_scratch b = gemm_scratch_of(w, (float *)w->workspace);
    i64 item = next_tile(w), first = 0;
    for (i32 phase = 0; phase < phases; phase++) {
        conv_gemm p = plan(op, phase, w->threads, panels);
        for (; item < first + gemm_items(&p); item = next_tile(w)) gemm_item(&p, &epi, w, b, item - first);
        first += gemm_items(&p);
        panels += shared_panel_floats(&p);
    }
}
