/* Weight gradient (wgrad): dW = X^T dY. Rows are (tap, channel), and one more for the bias, whose x is 1 everywhere.
 * A work item is a block of rows x a block of columns x a slice of the pixels. If there are too few blocks for the
 * threads, the pixels are cut into slices with separate sums, which are then added, always in the same order. */
typedef struct {
    im2col_view view;
    const conv_backward_weights *op;
    i32 columns, rows, block_tiles, row_blocks, block_panels, column_blocks, slices;
    i64 block_pixels;
} weight_gradient;

static i64 wgrad_blocks(const weight_gradient *g) { return (i64)g->op->g.groups * g->row_blocks * g->column_blocks; }
static i64 result_floats(const weight_gradient *g) { return (i64)g->block_tiles * MR * (g->block_panels * NR + LANES); }

/* Cost per pixel of an item: products, gathering rows, gathering columns. */
static i64 pixel_cost(i64 tiles, i64 panels) { return 14 * tiles * panels + 6 * tiles + 10 * panels; }

static void choose_wgrad_blocking(weight_gradient *g, i32 threads) {
    i32 tiles = CEIL_DIV(g->rows, MR), panels = panel_count(g->columns), groups = g->op->g.groups;
    i32 max_slices = (i32)MIN(threads, CEIL_DIV(g->view.rows, 32));
    i64 best = -1;
    for (i32 rows = CEIL_DIV(tiles, WGRAD_ROWS / MR), i = 0; rows <= tiles && i < 6; rows++, i++)
        for (i32 columns = CEIL_DIV(panels, WGRAD_COLUMNS / NR); columns <= panels; columns *= 2)
            for (i32 slices = 1; slices <= max_slices; slices++) {
                i64 block_tiles = CEIL_DIV(tiles, rows), block_panels = CEIL_DIV(panels, columns);
                i64 blocks = groups * CEIL_DIV(tiles, block_tiles) * CEIL_DIV(panels, block_panels);
                i64 pixels = CEIL_DIV(g->view.rows, slices);
                i64 cost = CEIL_DIV(blocks * slices, threads) * pixels * pixel_cost(block_tiles, block_panels);
                if (slices > 1) cost += (slices + 1) * 4 * MR * blocks * block_tiles * block_panels / threads;
                if (best >= 0 && cost >= best) continue;
                best = cost;
                g->block_tiles = (i32)block_tiles;
                g->block_panels = (i32)block_panels;
                g->slices = slices;
            }
    g->row_blocks = CEIL_DIV(tiles, g->block_tiles);
    g->column_blocks = CEIL_DIV(panels, g->block_panels);
}

static weight_gradient plan_wgrad(const conv_backward_weights *op, i32 threads) {
    weight_gradient g = {.view = forward_view(&op->g, op->x), .op = op, .columns = op->g.out_c / op->g.groups};
    g.rows = (i32)g.view.depth + (op->dbias ? 1 : 0);
    choose_wgrad_blocking(&g, threads);
    i64 pixels = CEIL_DIV(g.view.rows, g.slices);
    g.block_pixels = CEIL_DIV(pixels, CEIL_DIV(pixels, WGRAD_PIXELS));
    return g;
}

/* The private memory of a thread: some gathered rows, a block as tiles, columns as panels, and the results if they
 * are not slices. A tile has TILE_WIDTH floats per pixel, a power of two, so that one instruction copies it. */
enum {
    TILE_WIDTH = MR <= 4 ? 4 : 8,
    GATHER_ROWS = 8,
    WGRAD_LD = WGRAD_ROWS + LANES,
    WGRAD_GATHERED = GATHER_ROWS * WGRAD_LD,
    WGRAD_TILES = WGRAD_ROWS / MR * TILE_WIDTH * WGRAD_PIXELS,
    WGRAD_PANELS = WGRAD_COLUMNS * WGRAD_PIXELS,
    WGRAD_RESULTS = WGRAD_ROWS * (WGRAD_COLUMNS + LANES),
    WGRAD_FLOATS = ROUND_UP(WGRAD_GATHERED + WGRAD_TILES + WGRAD_PANELS + WGRAD_RESULTS, 16),
};
_Static_assert(MR <= TILE_WIDTH && TILE_WIDTH <= MR + LANES, "a copied tile stays within the padding");

/* The range of one block. */
typedef struct {
    i32 group, row0, rows, panel0, panels;
} wgrad_block;

static wgrad_block locate_block(const weight_gradient *g, i64 block) {
    i32 row_block = (i32)(block / g->column_blocks % g->row_blocks);
    wgrad_block b = {.group = (i32)(block / g->column_blocks / g->row_blocks)};
    b.row0 = row_block * g->block_tiles * MR;
    b.rows = MIN(g->block_tiles * MR, g->rows - b.row0);
    b.panel0 = (i32)(block % g->column_blocks) * g->block_panels;
    b.panels = MIN(g->block_panels, panel_count(g->columns) - b.panel0);
    return b;
}

/* The rows of a block as tiles: tile t of pixel p is at tiles[(t * pixels + p) * TILE_WIDTH]. The last tile is
 * padded with zeros. */
static void gather_tiles(const weight_gradient *g, wgrad_block b, i64 pixel0, i32 pixels, float *gathered,
                         float *tiles) {
    typedef float part __attribute__((ext_vector_type(TILE_WIDTH), aligned(4)));
    i32 depth = (i32)MIN(b.rows, g->view.depth - b.row0), count = CEIL_DIV(b.rows, MR);
    for (i32 p = 0; p < pixels; p += GATHER_ROWS) {
        row_list list;
        locate_rows(&g->view, pixel0 + p, MIN(GATHER_ROWS, pixels - p), &list);
        gather_rows(&g->view, &list, b.group, b.row0, depth, gathered, WGRAD_LD);
        for (i32 r = 0; r < list.count; r++)
            for (i32 i = depth; i < count * MR; i++) gathered[r * WGRAD_LD + i] = i < b.rows;
        for (i32 epi = 0; epi < count; epi++) {
            float *to = tiles + ((i64)epi * pixels + p) * TILE_WIDTH;
            for (i32 r = 0; r < list.count; r++)
                *(part *)(to + r * TILE_WIDTH) = *(const part *)(gathered + r * WGRAD_LD + epi * MR);
        }
    }
}

static void gather_panels(const weight_gradient *g, wgrad_block b, i64 pixel0, i32 pixels, float *to) {
    const conv_backward_weights *op = g->op;
    for (i32 p = 0; p < pixels; p++) {
        const float *from = op->dy + (pixel0 + p) * op->ld_dy + b.group * g->columns;
        for (i32 i = 0; i < b.panels; i++) {
            i32 n = (b.panel0 + i) * NR, width = panel_width(g->columns, b.panel0 + i);
            copy_padded(from + n, MIN(width, g->columns - n), to + (i64)i * NR * pixels + p * width, width);
        }
    }
}

/* Prefetch what the next pixels will gather. */
static prefetch_list prefetch_pixels(const weight_gradient *g, wgrad_block b, i64 pixel, i64 count) {
    prefetch_list prefetch = {0};
    const conv_backward_weights *op = g->op;
    i64 n0 = b.panel0 * NR, columns = MIN(b.panels * NR, g->columns - n0);
    prefetch_columns(&prefetch, op->dy + pixel * op->ld_dy + b.group * g->columns + n0, count, columns, op->ld_dy,
                     FP32);
    const fused_input *x = &op->x;
    i64 c0 = b.group * g->view.channels + b.row0;
    if (g->view.pointwise)
        prefetch_columns(&prefetch, element_at(x->data, pixel * x->ld + c0, x->dtype), count, b.rows, x->ld, x->dtype);
    return prefetch;
}

/* Results are a matrix. LANES extra floats per row keep its rows out of the same sets of the L1 cache. */
INLINE i64 result_ld(const weight_gradient *g) { return (i64)g->block_panels * NR + LANES; }

INLINE void wgrad_tile(const weight_gradient *g, wgrad_block b, i32 i, i32 pixels, const float *tile,
                       const float *panels, float *to, i32 accumulate, prefetch_list *prefetch) {
    i32 width = panel_width(g->columns, b.panel0 + i);
    prefetch_cursor cursor = prefetch_list_next(prefetch, pixels, tile);
    f32_gemm_tn(width, pixels, tile, TILE_WIDTH, panels + (i64)i * NR * pixels, width, to + i * NR, result_ld(g),
                accumulate, &cursor);
}

/* Store one row of a block: add the results of all slices and store them to dweights or dbias. `row` is relative to
 * the block. */
static void store_wgrad_row(const weight_gradient *g, wgrad_block b, i32 row, const float *results) {
    enum { STREAMING_FLOATS = 1 << 22 }; /* too large to stay in the cache until the optimizer needs it */
    const conv_backward_weights *op = g->op;
    i64 k = b.row0 + row;
    i32 n0 = b.panel0 * NR, count = MIN(b.panels * NR, g->columns - n0), n = 0;
    float *to = (k < g->view.depth ? op->dweights + k * op->g.out_c : op->dbias) + b.group * g->columns + n0;
    if (g->slices == 1 && !op->accumulate && g->view.depth * op->g.out_c >= STREAMING_FLOATS &&
        (u64)to % sizeof(vec) == 0)
        for (; n + LANES <= count; n += LANES) __builtin_nontemporal_store(load(results + n), (vec *)(to + n));
    for (; n < count; n += LANES) {
        i32 lanes = MIN(LANES, count - n);
        vec sum = op->accumulate ? load_lanes(to + n, lanes) : (vec)0;
        for (i32 s = 0; s < g->slices; s++) sum += load(results + s * result_floats(g) + n);
        store_lanes(to + n, sum, lanes);
    }
}

/* If a single block of pixels is all there is, each tile is stored as soon as it is computed. */
static void wgrad_single_pass(const weight_gradient *g, wgrad_block b, float *scratch, float *results) {
    float *tiles = scratch + WGRAD_GATHERED, *panels = tiles + WGRAD_TILES;
    i32 pixels = (i32)g->view.rows;
    prefetch_list prefetch = {0};
    gather_tiles(g, b, 0, pixels, scratch, tiles);
    gather_panels(g, b, 0, pixels, panels);
    for (i32 epi = 0; epi < CEIL_DIV(b.rows, MR); epi++) {
        for (i32 i = 0; i < b.panels; i++)
            wgrad_tile(g, b, i, pixels, tiles + (i64)epi * pixels * TILE_WIDTH, panels, results, 0, &prefetch);
        for (i32 row = 0; row < MIN(MR, b.rows - epi * MR); row++)
            store_wgrad_row(g, b, epi * MR + row, results + row * result_ld(g));
    }
}

static void wgrad_slice(const weight_gradient *g, wgrad_block b, i32 slice, float *scratch, float *results) {
    float *tiles = scratch + WGRAD_GATHERED, *panels = tiles + WGRAD_TILES;
    i64 start, end;
    split_range(g->view.rows, slice, g->slices, &start, &end);
    for (i64 pixel = start; pixel < end; pixel += g->block_pixels) {
        i32 pixels = (i32)MIN(g->block_pixels, end - pixel);
        gather_tiles(g, b, pixel, pixels, scratch, tiles);
        gather_panels(g, b, pixel, pixels, panels);
        prefetch_list prefetch = prefetch_pixels(g, b, pixel + pixels, MIN(g->block_pixels, end - pixel - pixels));
        for (i32 i = 0; i < b.panels; i++)
            for (i32 epi = 0; epi < CEIL_DIV(b.rows, MR); epi++)
                wgrad_tile(g, b, i, pixels, tiles + (i64)epi * pixels * TILE_WIDTH, panels,
                           results + epi * MR * result_ld(g), pixel > start, &prefetch);
    }
}

static void run_wgrad(worker *w, const conv_backward_weights *op) {
    weight_gradient g = plan_wgrad(op, w->threads);
    float *scratch = (float *)w->workspace + (i64)w->index * WGRAD_FLOATS;
    float *slice_results = (float *)w->workspace + (i64)w->threads * WGRAD_FLOATS;
    float *results = scratch + WGRAD_FLOATS - WGRAD_RESULTS;
    i64 blocks = wgrad_blocks(&g);
    for (i64 item = next_tile(w); item < blocks * g.slices; item = next_tile(w)) {
        wgrad_block b = locate_block(&g, item / g.slices);
        if (g.view.rows <= g.block_pixels) {
            wgrad_single_pass(&g, b, scratch, results);
            continue;
        }
        wgrad_slice(&g, b, (i32)(item % g.slices), scratch,
                    g.slices > 1 ? slice_results + item * result_floats(&g) : results);
        if (g.slices > 1) continue;
        for (i32 row = 0; row < b.rows; row++) store_wgrad_row(&g, b, row, results + row * result_ld(&g));
    }
    if (g.slices == 1) return;
    barrier(w);
    for (i64 block = 0; block < blocks; block++) {
        wgrad_block b = locate_block(&g, block);
        i64 start, end;
        split_range(b.rows, w->index, w->threads, &start, &end);
        for (i32 row = (i32)start; row < end; row++)
            store_wgrad_row(&g, b, row, slice_results + block * g.slices * result_floats(&g) + row * result_ld(&g));
    }
}
