/* Convolution of any geometry, three directions, as products of matrices.
 *
 * Forward: rows are output pixels, columns output channels, depth (tap, input channel). Backward to the data is the same
 * on dy: rows are input pixels, columns input channels, depth (tap, output channel); with a stride, the input pixels fall
 * into stride x stride phases that different taps reach, and each phase is a product of its own: nothing is multiplied in
 * vain. Backward to the weights: rows are (tap, input channel), columns output channels, depth the pixels.
 */

/* One direction of the image, as a product sees it. Tap t of grid point j reads pixel j * stride + offset + t * spacing
 * (nothing outside 0 .. size), with weight first + t * step; its result is pixel to_first + j * to_step of the target. */
typedef struct {
    i32 grid, taps, stride, offset, spacing, size, first, step, to_first, to_step, to_size;
} axis;

static axis forward_axis(i32 in, i32 out, i32 kernel, i32 stride, i32 pad, i32 dilation) {
    return (axis){out, kernel, stride, -pad, dilation, in, 0, 1, 0, 1, out};
}

/* Input pixel i = phase + j * stride is reached by tap k from output pixel (i + pad - k * dilation) / stride, if that is
 * whole. The taps for which it is are evenly spaced; they are counted from the last, so that pixels ascend. */
static axis backward_axis(i32 in, i32 out, i32 kernel, i32 stride, i32 pad, i32 dilation, i32 phase) {
    axis a = {.stride = 1, .size = out, .to_first = phase, .to_step = stride, .to_size = in};
    a.grid = phase < in ? CEIL_DIV(in - phase, stride) : 0;
    for (i32 k = kernel - 1; k >= 0; k--) {
        i32 distance = phase + pad - k * dilation;
        if (distance % stride) continue;
        if (a.taps == 0) {
            a.first = k;
            a.offset = distance / stride;
        } else if (a.taps == 1) {
            a.step = k - a.first;
            a.spacing = distance / stride - a.offset;
        }
        a.taps++;
    }
    return a;
}

/* Where a product's depth comes from: pixels around a grid point, `channels` of each (of one group). Where the taps of a
 * kernel row lie side by side in memory, they are one run. */
typedef struct {
    fused_input x;
    axis h, w;
    i32 channels, run_taps;
    i32 pointwise; /* row r is pixel r */
    i64 rows, depth;
} im2col_view;

static im2col_view im2col_view_of(fused_input x, axis h, axis w, i32 batch, i32 channels) {
    im2col_view v = {.x = x, .h = h, .w = w, .channels = channels, .run_taps = 1};
    v.rows = (i64)batch * h.grid * w.grid;
    v.depth = (i64)h.taps * w.taps * channels;
    v.pointwise = h.taps * w.taps == 1 && h.stride * w.stride == 1 && h.grid == h.size && w.grid == w.size && !h.offset && !w.offset;
    if (!x.scale && x.ld == channels && (w.spacing == 1 || w.taps == 1)) v.run_taps = w.taps;
    return v;
}

/* Some rows of a product: their first pixel in the view's image, and their row in the target. */
enum { MAX_LISTED_ROWS = MAX(PRIVATE_BLOCK_ROWS, MAX(BLOCK_ROWS, WGRAD_PIXELS)) };
enum { SHORT_RUN_FLOATS = 32 }; /* floats: 7 taps of 3 channels, with room */
typedef struct {
    i32 count;
    i32 y[MAX_LISTED_ROWS], x[MAX_LISTED_ROWS];
    i64 image[MAX_LISTED_ROWS], target[MAX_LISTED_ROWS];
} row_list;

static void locate_rows(const im2col_view *v, i64 row0, i32 count, row_list *rows) {
    const axis *h = &v->h, *w = &v->w;
    i32 x = (i32)(row0 % w->grid), y = (i32)(row0 / w->grid % h->grid);
    i64 image = row0 / w->grid / h->grid;
    rows->count = count;
    for (i32 r = 0; r < count; x = 0) {
        i32 some = MIN(count - r, w->grid - x);
        i64 target = (image * h->to_size + h->to_first + y * h->to_step) * w->to_size + w->to_first + x * w->to_step;
        for (i32 i = 0; i < some; i++) {
            rows->y[r + i] = y * h->stride + h->offset;
            rows->x[r + i] = (x + i) * w->stride + w->offset;
            rows->image[r + i] = image * h->size * w->size;
            rows->target[r + i] = target + i * w->to_step;
        }
        r += some;
        if (++y < h->grid) continue;
        y = 0;
        image++;
    }
}

/* Numbers c .. c + count of the run that starts at pixel (y, x): several taps side by side, some perhaps outside. */
static NOINLINE void gather_edge(const im2col_view *v, const void *from, i32 x, i32 c, i32 count, float *to) {
    i32 start = MAX(0, -x) * v->channels, end = MIN(v->run_taps, v->w.size - x) * v->channels;
    start = MIN(MAX(start - c, 0), count);
    end = MAX(MIN(end - c, count), start);
    zero_row(to, start);
    copy_elements(element_at(from, start, v->x.dtype), end - start, to + start, v->x.dtype);
    zero_row(to + end, count - end);
}

INLINE void gather_run(const im2col_view *v, i64 image, i32 y, i32 x, i32 c, i32 count, float *to) {
    const void *from = element_at(v->x.data, (image + (i64)y * v->w.size + x) * v->channels + c, v->x.dtype);
    if (x >= 0 && x + v->run_taps <= v->w.size) copy_elements(from, count, to, v->x.dtype);
    else gather_edge(v, from, x, c, count, to);
}

/* All of a row's depth, where that is short runs (an image of few channels, in fp32) and none of them touches an edge. */
INLINE i32 gather_interior(const im2col_view *v, i64 image, i32 y, i32 x, float *to) {
    i32 length = v->run_taps * v->channels;
    i64 line = (i64)v->w.size * v->channels;
    if (x < 0 || x + v->run_taps > v->w.size || y < 0 || y + (v->h.taps - 1) * v->h.spacing >= v->h.size) return 0;
    const float *from = (const float *)v->x.data + (image * v->channels + y * line + (i64)x * v->channels);
    i64 step = v->h.spacing * line;
    i32 taps = v->h.taps;
    if (length < LANES)
        for (; taps > 0; taps--, from += step, to += length) store_partial(to, load_partial(from, length), length);
    for (; taps > 0; taps--, from += step, to += length) {
        store(to, load(from));
        for (i32 i = LANES; i < length - LANES; i += LANES) store(to + i, load(from + i));
        store(to + length - LANES, load(from + length - LANES));
    }
    return 1;
}

static void gather_short_runs(const im2col_view *v, const row_list *rows, float *to, i64 ld) {
    i32 length = v->run_taps * v->channels;
    for (i32 r = 0; r < rows->count; r++, to += ld) {
        i32 y = rows->y[r], x = rows->x[r];
        if (gather_interior(v, rows->image[r], y, x, to)) continue;
        for (i32 tap = 0; tap < v->h.taps; tap++, y += v->h.spacing) {
            if (y < 0 || y >= v->h.size) zero_row(to + tap * length, length);
            else gather_run(v, rows->image[r], y, x, 0, length, to + tap * length);
        }
    }
}

/* `multi_tap`: runs are several taps long. A constant, so that either loop has all registers for itself. */
INLINE void gather_any(
    const im2col_view *v, const row_list *rows, i32 group, i64 k0, i64 depth, float *to, i64 ld, i32 multi_tap
) {
    i32 length = v->run_taps * v->channels, runs = v->w.taps / v->run_taps, channel0 = group * v->channels;
    for (i64 k = 0; k < depth;) {
        i32 run = (i32)((k0 + k) / length), c = (i32)((k0 + k) % length);
        i32 floats = (i32)MIN(length - c, depth - k);
        i32 dy = run / runs * v->h.spacing, dx = run % runs * v->w.spacing;
        for (i32 r = 0; r < rows->count; r++) {
            float *at = to + r * ld + k;
            i32 y = rows->y[r] + dy, x = rows->x[r] + dx;
            i64 image = rows->image[r];
            if (y < 0 || y >= v->h.size) zero_row(at, floats);
            else if (multi_tap) gather_run(v, image, y, x, c, floats, at);
            else if (x < 0 || x >= v->w.size) zero_row(at, floats);
            else load_affine_row(&v->x, image + (i64)y * v->w.size + x, channel0 + c, floats, at);
        }
        k += floats;
    }
}

static NOINLINE void gather_multi_tap(const im2col_view *v, const row_list *rows, i64 k0, i64 depth, float *to, i64 ld) {
    gather_any(v, rows, 0, k0, depth, to, ld, 1);
}

/* to[r][0 .. depth) = numbers k0 .. of the depth of these rows; zeros where taps lie outside the image. */
static void gather_rows(const im2col_view *v, const row_list *rows, i32 group, i64 k0, i64 depth, float *to, i64 ld) {
    if (v->run_taps == 1) gather_any(v, rows, group, k0, depth, to, ld, 0);
    else if (depth == v->depth && v->run_taps * v->channels <= SHORT_RUN_FLOATS && v->x.dtype == FP32)
        gather_short_runs(v, rows, to, ld);
    else gather_multi_tap(v, rows, k0, depth, to, ld);
}

/* The weights of a product: row (tap, channel), column n of a group. One of the two strides is 1. */
typedef struct {
    const float *data;
    i64 tap, group, row, column;
    i32 kernel_w;
} weight_matrix;

/* A product, and how it is cut: an item of work is some row blocks, one after the other, x a column block x a group. */
typedef struct {
    im2col_view view;
    weight_matrix weights;
    i32 columns, groups;
    i32 block_tiles, row_blocks, blocks_per_item, block_panels, column_blocks;
    i64 block_depth, depth_blocks;
    i32 private_packing; /* each thread packs the weights it needs, when it needs them: there are hardly other users */
    float *panels;   /* all of the weights, where not */
} conv_gemm;

static i64 gemm_items(const conv_gemm *p) {
    return p->row_blocks ? (i64)p->groups * CEIL_DIV(p->row_blocks, p->blocks_per_item) * p->column_blocks : 0;
}
static i64 shared_panel_floats(const conv_gemm *p) { return p->private_packing ? 0 : p->groups * p->view.depth * padded_columns(p->columns); }

/* What one block costs, in tenths of tile multiplications: these, gathering a tile of rows, bringing a panel close. */
static i64 block_cost(i64 tiles, i64 panels) { return 10 * tiles * panels + 4 * tiles + 5 * panels; }
/* And packing a panel: when all do it before, and when each does it on the way, with its weights fetched ahead. */
enum { PACK_COST = 80, PRIVATE_PACK_COST = 40 };

enum { MAX_BLOCKS_PER_ITEM = 8 };

/* A way to cut rows into blocks of `block_tiles`, columns into blocks of `block_panels`; its cost replaces *best if lower. */
static void try_blocking(conv_gemm *p, i32 tiles, i32 panels, i32 block_tiles, i32 block_panels, i32 private_packing, i32 threads, i64 *best) {
    i64 blocks = (i64)p->groups * CEIL_DIV(tiles, block_tiles) * CEIL_DIV(panels, block_panels);
    i64 cost = block_cost(block_tiles, block_panels) + (private_packing ? PRIVATE_PACK_COST * block_panels : 0);
    cost = CEIL_DIV(blocks, threads) * cost + (private_packing ? 0 : CEIL_DIV((i64)PACK_COST * panels * p->groups, threads));
    if (*best >= 0 && cost >= *best) return;
    *best = cost;
    p->block_tiles = block_tiles;
    p->block_panels = block_panels;
    p->private_packing = private_packing;
}

/* The cut that keeps all threads busy and blocks large. */
static void choose_blocking(conv_gemm *p, i32 threads) {
    i32 tiles = (i32)CEIL_DIV(p->view.rows, MR), panels = panel_count(p->columns);
    p->depth_blocks = MAX(1, CEIL_DIV(p->view.depth, BLOCK_DEPTH));
    p->block_depth = ROUND_UP(CEIL_DIV(p->view.depth, p->depth_blocks), 8);
    p->private_packing = 1;
    if (tiles == 0) return; /* a phase beyond the image: no items */
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

/* Rows k0 .. k0 + depth of some panels, as they come in the weights: to row k_to of panels of `panel_depth` rows. */
static void pack_weights(const conv_gemm *p, i32 group, i64 k0, i64 depth, i32 panel0, i32 panels, float *to, i64 panel_depth, i64 k_to) {
    const weight_matrix *m = &p->weights;
    for (i64 k = k0; k < k0 + depth;) {
        i32 count = (i32)MIN(p->view.channels - k % p->view.channels, k0 + depth - k);
        const float *from = weight_row(p, group, k);
        for (i32 panel = 0; panel < panels; panel++) {
            i32 n = (panel0 + panel) * NR, width = panel_width(p->columns, panel0 + panel), used = MIN(width, p->columns - n);
            float *at = to + (i64)panel * NR * panel_depth + (k - k0 + k_to) * width;
            if (m->row == 1) pack_transposed_panel(from + n * m->column, m->column, used, count, at, width);
            else
                for (i32 i = 0; i < count; i++) copy_padded(from + i * m->row + n, used, at + (i64)i * width, width);
        }
        k += count;
    }
}

enum { PACK_ROWS_PER_ITEM = 64 };

static i64 pack_items(const conv_gemm *p) { return p->private_packing ? 0 : p->groups * CEIL_DIV(p->view.depth, PACK_ROWS_PER_ITEM); }

static void pack_item(const conv_gemm *p, i64 item) {
    i64 pieces = CEIL_DIV(p->view.depth, PACK_ROWS_PER_ITEM), k0 = item % pieces * PACK_ROWS_PER_ITEM;
    i32 group = (i32)(item / pieces);
    float *to = p->panels + group * p->view.depth * padded_columns(p->columns);
    pack_weights(p, group, k0, MIN(PACK_ROWS_PER_ITEM, p->view.depth - k0), 0, panel_count(p->columns), to, p->view.depth, k0);
}

/* A thread's own memory in a product. */
typedef struct {
    float *rows, *results, *panels;
} gemm_scratch;

enum {
    SCRATCH_ROWS = MAX(PRIVATE_BLOCK_ROWS, BLOCK_ROWS) * LDA,
    SCRATCH_RESULTS = MAX(PRIVATE_BLOCK_ROWS * (PRIVATE_BLOCK_COLUMNS + LANES), BLOCK_ROWS * (BLOCK_COLUMNS + LANES)),
    SCRATCH_PANELS = PRIVATE_BLOCK_COLUMNS * ROUND_UP(BLOCK_DEPTH, 8),
    SCRATCH_FLOATS = ROUND_UP(SCRATCH_ROWS + SCRATCH_RESULTS + SCRATCH_PANELS, 16),
};

static gemm_scratch gemm_scratch_of(const worker *w, float *all) {
    float *mine = all + (i64)w->index * SCRATCH_FLOATS;
    return (gemm_scratch){mine, mine + SCRATCH_ROWS, mine + SCRATCH_ROWS + SCRATCH_RESULTS};
}

/* Who takes the results: exactly one is set. */
typedef struct {
    const conv_forward *forward;
    const fused_gradient *gradient;
} epilogue;

static void apply_epilogue(const epilogue *epi, const worker *w, const row_list *rows, const float *tile, i32 ld, i32 c0, i32 channels) {
    if (epi->forward) store_output_tile(epi->forward, w, tile, ld, rows->target[0], rows->count, c0, channels);
    else store_gradient_tile(epi->gradient, w, tile, ld, rows->target, rows->count, c0, channels);
}

/* What a block will touch when it is handed over, and what the next one will gather. */
static prefetch_list prefetch_block(const conv_gemm *p, const epilogue *epi, i32 column_block, i64 row0, i32 count, i32 next) {
    enum { MAX_PREFETCH_FLOATS = 1 << 16 };
    prefetch_list prefetch = {0};
    if (p->groups == 1 && p->view.w.to_step == 1) {
        const conv_forward *f = epi->forward;
        const fused_gradient *s = epi->gradient;
        i64 c0 = (i64)column_block * p->block_panels * NR, columns = MIN(p->block_panels * NR, p->columns - c0);
        if (f) prefetch_columns(&prefetch, element_at(f->y, row0 * f->ld_y + c0, f->dtype), count, columns, f->ld_y, f->dtype);
        if (s) prefetch_columns(&prefetch, s->data + row0 * s->ld + c0, count, columns, s->ld, FP32);
        if (s && s->act != ACT_NONE) prefetch_columns(&prefetch, element_at(s->y, row0 * s->ld_y + c0, s->dtype), count, columns, s->ld_y, s->dtype);
    }
    const fused_input *x = &p->view.x;
    if (p->view.pointwise && (i64)next * x->ld <= MAX_PREFETCH_FLOATS)
        prefetch_elements(&prefetch, element_at(x->data, (row0 + count) * x->ld, x->dtype), (i64)next * x->ld, x->dtype);
    return prefetch;
}

/* The weights that the next block of depth will pack. */
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

static void gemm_block(const conv_gemm *p, const epilogue *epi, const worker *w, gemm_scratch b, i32 group, i32 column_block, i64 row0,
                           i32 count, prefetch_list prefetch) {
    enum { PANELS_PER_PASS = BLOCK_COLUMNS / NR };
    i64 depth = p->view.depth;
    i32 tiles = CEIL_DIV(count, MR), panel0 = column_block * p->block_panels;
    i32 panels = MIN(p->block_panels, panel_count(p->columns) - panel0), ld = MIN(panels, PANELS_PER_PASS) * NR + LANES;
    const fused_input *x = &p->view.x;
    /* The rows may be multiplied where they are. */
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
            gemm_panel(tiles, k, a, in_place ? x->ld : LDA, panel, width, b.results + slot * NR, ld, block > 0, &prefetch);
            if (block + 1 < p->depth_blocks || (slot + 1 < PANELS_PER_PASS && i + 1 < panels)) continue;
            i32 first = n - slot * NR;
            apply_epilogue(epi, w, &rows, b.results, ld, group * p->columns + first, MIN((slot + 1) * NR, p->columns - first));
        }
    }
}

static void gemm_item(const conv_gemm *p, const epilogue *epi, const worker *w, gemm_scratch b, i64 item) {
    i32 column_block = (i32)(item % p->column_blocks), item_rows = p->blocks_per_item * p->block_tiles * MR;
    i64 spans = CEIL_DIV(p->row_blocks, p->blocks_per_item), span = item / p->column_blocks % spans;
    i32 group = (i32)(item / p->column_blocks / spans);
    i64 end = MIN((span + 1) * item_rows, p->view.rows);
    for (i64 row = span * item_rows; row < end;) {
        i32 count = (i32)MIN((i64)p->block_tiles * MR, end - row), next = (i32)MIN((i64)p->block_tiles * MR, end - row - count);
        gemm_block(p, epi, w, b, group, column_block, row, count,
                       prefetch_block(p, epi, column_block, row, count, next));
        row += count;
    }
}

/* One product, or the phases of a stride: `plan` makes each, and finds its panels at `panels`. */
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

static im2col_view forward_view(const geometry *g, fused_input x) {
    axis h = forward_axis(g->in_h, g->out_h, g->kernel_h, g->stride, g->pad_h, g->dilation);
    axis w = forward_axis(g->in_w, g->out_w, g->kernel_w, g->stride, g->pad_w, g->dilation);
    return im2col_view_of(x, h, w, g->batch, g->in_c / g->groups);
}

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
    conv_gemm p = {.view = im2col_view_of(dy, h, w, g->batch, out), .columns = in, .groups = g->groups, .panels = panels};
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

/* Weight gradients. Rows: (tap, channel), and one more for the bias, whose x is 1 everywhere. An item is a block of rows
 * x a block of columns x a slice of the pixels: where there are too few blocks for the threads, slices are summed up apart
 * and then together, always in the same order. */
typedef struct {
    im2col_view view;
    const conv_backward_weights *op;
    i32 columns, rows, block_tiles, row_blocks, block_panels, column_blocks, slices;
    i64 block_pixels;
} weight_gradient;

static i64 wgrad_blocks(const weight_gradient *g) { return (i64)g->op->g.groups * g->row_blocks * g->column_blocks; }
static i64 result_floats(const weight_gradient *g) { return (i64)g->block_tiles * MR * (g->block_panels * NR + LANES); }

/* What one pixel of an item costs: multiplications, gathering rows, gathering columns. */
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

/* A thread's own memory: some gathered rows, and all of a block as tiles; columns as panels; results, where they are not
 * kept. A tile has TILE_WIDTH floats a pixel: a power of two, to be copied at once. */
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

/* What a block covers. */
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

/* The rows of a block as tiles: tile t, pixel p at tiles[(t * pixels + p) * TILE_WIDTH]. The last is filled up with zeros. */
static void gather_tiles(const weight_gradient *g, wgrad_block b, i64 pixel0, i32 pixels, float *gathered, float *tiles) {
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

/* What the next pixels' gathering will read. */
static prefetch_list prefetch_pixels(const weight_gradient *g, wgrad_block b, i64 pixel, i64 count) {
    prefetch_list prefetch = {0};
    const conv_backward_weights *op = g->op;
    i64 n0 = b.panel0 * NR, columns = MIN(b.panels * NR, g->columns - n0);
    prefetch_columns(&prefetch, op->dy + pixel * op->ld_dy + b.group * g->columns + n0, count, columns, op->ld_dy, FP32);
    const fused_input *x = &op->x;
    i64 c0 = b.group * g->view.channels + b.row0;
    if (g->view.pointwise) prefetch_columns(&prefetch, element_at(x->data, pixel * x->ld + c0, x->dtype), count, b.rows, x->ld, x->dtype);
    return prefetch;
}

/* Results are a matrix; LANES floats more a row keep its rows out of the same sets of L1. */
INLINE i64 result_ld(const weight_gradient *g) { return (i64)g->block_panels * NR + LANES; }

INLINE void wgrad_tile(const weight_gradient *g, wgrad_block b, i32 i, i32 pixels, const float *tile, const float *panels, float *to,
                     i32 accumulate, prefetch_list *prefetch) {
    i32 width = panel_width(g->columns, b.panel0 + i);
    prefetch_cursor cursor = prefetch_list_next(prefetch, pixels, tile);
    f32_gemm_tn(width, pixels, tile, TILE_WIDTH, panels + (i64)i * NR * pixels, width, to + i * NR, result_ld(g), accumulate,
                      &cursor);
}

/* One row of a block: the slices' results added up, into dweights or dbias; `row` counts from the block's first. */
static void store_wgrad_row(const weight_gradient *g, wgrad_block b, i32 row, const float *results) {
    enum { STREAMING_FLOATS = 1 << 22 }; /* floats: more than caches keep until the optimiser comes */
    const conv_backward_weights *op = g->op;
    i64 k = b.row0 + row;
    i32 n0 = b.panel0 * NR, count = MIN(b.panels * NR, g->columns - n0), n = 0;
    float *to = (k < g->view.depth ? op->dweights + k * op->g.out_c : op->dbias) + b.group * g->columns + n0;
    if (g->slices == 1 && !op->accumulate && g->view.depth * op->g.out_c >= STREAMING_FLOATS && (u64)to % sizeof(vec) == 0)
        for (; n + LANES <= count; n += LANES) __builtin_nontemporal_store(load(results + n), (vec *)(to + n));
    for (; n < count; n += LANES) {
        i32 lanes = MIN(LANES, count - n);
        vec sum = op->accumulate ? load_lanes(to + n, lanes) : (vec)0;
        for (i32 s = 0; s < g->slices; s++) sum += load(results + s * result_floats(g) + n);
        store_lanes(to + n, sum, lanes);
    }
}

/* Where one block of pixels is all there is, a tile is written as soon as it is made. */
static void wgrad_single_pass(const weight_gradient *g, wgrad_block b, float *scratch, float *results) {
    float *tiles = scratch + WGRAD_GATHERED, *panels = tiles + WGRAD_TILES;
    i32 pixels = (i32)g->view.rows;
    prefetch_list prefetch = {0};
    gather_tiles(g, b, 0, pixels, scratch, tiles);
    gather_panels(g, b, 0, pixels, panels);
    for (i32 epi = 0; epi < CEIL_DIV(b.rows, MR); epi++) {
        for (i32 i = 0; i < b.panels; i++)
            wgrad_tile(g, b, i, pixels, tiles + (i64)epi * pixels * TILE_WIDTH, panels, results, 0, &prefetch);
        for (i32 row = 0; row < MIN(MR, b.rows - epi * MR); row++) store_wgrad_row(g, b, epi * MR + row, results + row * result_ld(g));
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
                wgrad_tile(g, b, i, pixels, tiles + (i64)epi * pixels * TILE_WIDTH, panels, results + epi * MR * result_ld(g), pixel > start, &prefetch);
    }
}

static i64 workspace_conv_backward_weights(i32 threads, const void *p) {
    const conv_backward_weights *op = p;
    if (op->algorithm != DIRECT) return winograd_workspace_backward_weights(threads, op);
    weight_gradient g = plan_wgrad(op, threads);
    i64 slice_results = g.slices > 1 ? wgrad_blocks(&g) * g.slices * result_floats(&g) : 0;
    return ((i64)threads * WGRAD_FLOATS + slice_results) * (i64)sizeof(float);
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
        wgrad_slice(&g, b, (i32)(item % g.slices), scratch, g.slices > 1 ? slice_results + item * result_floats(&g) : results);
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

static void run_conv_backward_weights(worker *w, const void *p) {
    const conv_backward_weights *op = p;
    if (op->algorithm != DIRECT) winograd_backward_weights(w, op);
    else run_wgrad(w, op);
}
