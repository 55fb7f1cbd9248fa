/* Convolution as a matrix product without a stored im2col matrix (implicit GEMM).
 *
 * Forward: rows are output pixels, columns output channels, depth (tap, input channel). Backward data is the same on
 * dy: rows are input pixels, columns input channels, depth (tap, output channel). With a stride, the input pixels
 * fall into phases that different taps reach; each phase is its own product. Weights are packed in panels
 * (pack_weights.cl).
 *
 * A work-item computes a register tile of ROWS rows x COLUMNS vectors of WIDTH channels; up to TILES tiles of rows x
 * SWEEP tiles of columns, one after the other. A work-group (GROUP_ROWS x GROUP_COLUMNS work-items) gathers DEPTH
 * elements of each of its rows into local memory, with the fused operation applied, and zeros where a tap lies
 * outside the image. */

#define PANEL (COLUMNS * WIDTH) /* channels per tile */
#define BLOCK (GROUP_ROWS * TILES * ROWS)
#define GROUP (GROUP_ROWS * GROUP_COLUMNS)
#define LDA (DEPTH + 4) /* padded, so that the rows of a block do not all fall into the same cache sets */

#if GROUP > 1
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define BARRIER()
#endif

/* What a product reads and writes. Run (i, j) of the depth of grid point (h, w) starts at pixel (h * stride +
 * offset_h + i * spacing_h, w * stride + offset_w + j * spacing_w) and covers `run_taps` contiguous pixels with
 * `channels` elements each. The result belongs to pixel (to_first_h + h * to_step, to_first_w + w * to_step). */
typedef struct {
    int rows, grid_h, grid_w, from_h, from_w, channels, groups;
    int runs_h, runs_w, run_taps, stride, offset_h, offset_w, spacing_h, spacing_w;
    int to_h, to_w, to_first_h, to_first_w, to_step;
    int columns, panels, depth, tiles, sweep, packed, ld_weights;
} conv_gemm;

/* The position of a grid point. */
typedef struct {
    int image, y, x;
} grid_point;

static inline grid_point grid_point_of(const conv_gemm *p, int row) {
    int line = row / p->grid_w;
    grid_point at;
    at.x = row - line * p->grid_w;
    at.image = line / p->grid_h;
    at.y = line - at.image * p->grid_h;
    return at;
}

/* Move on by `step` grid points: cheaper than a division for small steps. */
static inline void advance(const conv_gemm *p, grid_point *at, int step) {
    for (at->x += step; at->x >= p->grid_w; at->x -= p->grid_w)
        if (++at->y == p->grid_h) {
            at->y = 0;
            at->image++;
        }
}

static inline long target_row(const conv_gemm *p, grid_point at) {
    return ((long)at.image * p->to_h + p->to_first_h + at.y * p->to_step) * p->to_w + p->to_first_w + at.x * p->to_step;
}

/* The input tensor and its fused operation. */
typedef struct {
    global const X *data;
    global const float *scale, *shift;
    int ld, has_affine, act;
} affine_input;

/* A position in the depth (k): run (i, j), and element c of it. */
typedef struct {
    int i, j, c;
} k_index;

static inline k_index k_index_of(const conv_gemm *p, int k) {
    int length = p->run_taps * p->channels, run = k / length;
    k_index at = {run / p->runs_w, run % p->runs_w, k - run * length};
    return at;
}

/* to[0 .. count - 1] = elements from `at` on, with the fused operation applied; the first belongs to channel c. */
static inline void load_affine_run(const affine_input *s, global const X *at, int c, int count, local float *to) {
    int k = 0;
    if (s->has_affine) {
        for (; k + WIDTH <= count; k += WIDTH) {
            VEC scale = loadv_float(s->scale + c + k), shift = loadv_float(s->shift + c + k);
            PASTE(vstore, WIDTH)(activate_v(LOADV(X, at + k) * scale + shift, s->act), 0, to + k);
        }
    } else {
        for (; k + WIDTH <= count; k += WIDTH) PASTE(vstore, WIDTH)(LOADV(X, at + k), 0, to + k);
    }
    for (; k < count; k++) to[k] = apply_affine(LOAD(X, at, k), s->has_affine, s->scale, s->shift, c + k, s->act);
}

static inline void zero_run(local float *to, int first, int last) {
    for (; first + 4 <= last; first += 4) vstore4((float4)0, 0, to + first);
    for (; first < last; first++) to[first] = 0;
}

/* to[0 .. count - 1] = elements of one run of a grid point, zeros where its pixels lie outside the image. */
static inline void gather_run(const conv_gemm *p, const affine_input *s, grid_point at, k_index k, int group, int count,
                              local float *to) {
    int y = at.y * p->stride + p->offset_h + k.i * p->spacing_h,
        x = at.x * p->stride + p->offset_w + k.j * p->spacing_w;
    int first = 0, last = 0;
    if (y >= 0 && y < p->from_h) {
        first = clamp(-x * p->channels - k.c, 0, count);
        last = clamp((p->from_w - x) * p->channels - k.c, first, count);
    }
    long pixel = ((long)at.image * p->from_h + y) * p->from_w + x;
    int c = group * p->channels + k.c;
    zero_run(to, 0, first);
    load_affine_run(s, s->data + pixel * s->ld + c + first, c + first, last - first, to + first);
    zero_run(to, last, count);
}

/* to[0 .. count - 1] = elements of the depth of a grid point, from k on. */
static inline void gather(const conv_gemm *p, const affine_input *s, grid_point at, k_index k, int group, int count,
                          local float *to) {
    int length = p->run_taps * p->channels;
    while (count > 0) {
        int elements = min(length - k.c, count);
        gather_run(p, s, at, k, group, elements, to);
        to += elements;
        count -= elements;
        k.c = 0;
        if (++k.j == p->runs_w) {
            k.j = 0;
            k.i++;
        }
    }
}

/* tile += rows of `block` x a panel, over a depth of `count`. */
static inline void multiply(VEC tile[ROWS][COLUMNS], local const float *block, global const float *panel, int ld,
                            int count) {
    VEC sum[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum[i][j] = tile[i][j];
    for (int k = 0; k < count; k++, panel += ld) {
        VEC w[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) w[j] = loadv_float(panel + j * WIDTH);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float x = block[i * LDA + k];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += x * w[j];
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) tile[i][j] = sum[i][j];
}

/* What a work-item computes: tiles[panel * TILES + row tile]. */
typedef struct {
    int first_panel, panels, row0, tiles, group;
} work_tile;

static inline work_tile my_work_tile(const conv_gemm *p) {
    work_tile m;
    m.first_panel = get_global_id(0) * p->sweep;
    m.panels = clamp(p->panels - m.first_panel, 0, p->sweep);
    m.row0 = get_global_id(1) * p->tiles * ROWS;
    m.tiles = clamp(CEIL_DIV(p->rows - m.row0, ROWS), 0, p->tiles);
    m.group = get_global_id(2);
    return m;
}

static inline int local_item(void) { return get_local_id(1) * GROUP_COLUMNS + get_local_id(0); }

static inline void clear(VEC tiles[SWEEP * TILES][ROWS][COLUMNS]) {
    for (int n = 0; n < SWEEP * TILES; n++)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) tiles[n][i][j] = 0;
}

static inline void compute(VEC tiles[SWEEP * TILES][ROWS][COLUMNS], const conv_gemm *p, work_tile m,
                           const affine_input *s, global const float *weights, local float *block) {
    int rows = GROUP_ROWS * p->tiles * ROWS, row0 = get_group_id(1) * rows;
    rows = min(rows, p->rows - row0);
    local const float *mine = block + get_local_id(1) * p->tiles * ROWS * LDA;
    clear(tiles);
    for (int k = 0; k < p->depth; k += DEPTH) {
        int count = min(DEPTH, p->depth - k);
        k_index here = k_index_of(p, k);
        grid_point at = grid_point_of(p, row0 + local_item());
        BARRIER();
        for (int r = local_item(); r < rows; r += GROUP, advance(p, &at, GROUP))
            gather(p, s, at, here, m.group, count, block + r * LDA);
        BARRIER();
        for (int n = 0; n < m.panels; n++) {
            int panel = m.first_panel + n;
            global const float *from =
                weights + (p->packed ? (((long)m.group * p->panels + panel) * p->depth + k) * PANEL
                                     : (long)k * p->ld_weights + m.group * p->columns + panel * PANEL);
            for (int t = 0; t < m.tiles; t++)
                multiply(tiles[n * TILES + t], mine + t * ROWS * LDA, from, p->packed ? PANEL : p->ld_weights, count);
        }
    }
}

#define WORK_GROUP __attribute__((reqd_work_group_size(GROUP_COLUMNS, GROUP_ROWS, 1)))

/* Work-items: groups of SWEEP panels, tiles of rows, convolution groups. If `has_norm`, also stores the mean of the
 * item's rows per channel and the sum of squared deviations from it: [item][2][channels] in parts. */
WORK_GROUP kernel void conv_forward(conv_gemm p, INPUT(X, x), global const float *weights, long weights_at,
                                    global const float *bias_buffer, long bias_at, global Y *y, long y_at,
                                    global float *parts, long parts_at, int ld_y, int act, int has_bias, int has_norm) {
    local float block[BLOCK * LDA];
    VEC tiles[SWEEP * TILES][ROWS][COLUMNS];
    OPEN_INPUT(X, x);
    affine_input s = {x, x_scale, x_shift, x_ld, x_has_affine, x_act};
    work_tile m = my_work_tile(&p);
    compute(tiles, &p, m, &s, weights + weights_at, block);
    for (int n = 0; n < m.panels; n++)
        for (int j = 0; j < COLUMNS; j++) {
            int column = ((m.first_panel + n) * COLUMNS + j) * WIDTH, width = p.columns - column;
            int channel = m.group * p.columns + column;
            if (width <= 0) continue;
            VEC bias = 0, pivot = tiles[n * TILES][0][j], sum = 0, squares = 0;
            if (has_bias) bias = LOADN(float, bias_buffer + bias_at + channel, width);
            for (int t = 0; t < m.tiles; t++)
                for (int i = 0; i < ROWS; i++) {
                    int row = m.row0 + t * ROWS + i;
                    if (row >= p.rows) break;
                    VEC v = tiles[n * TILES + t][i][j], d = v - pivot;
                    sum += d;
                    squares += d * d;
                    v = activate_v(v + bias, act);
                    STOREN(Y, y + y_at + (long)row * ld_y + channel, width, v);
                }
            if (has_norm && m.tiles > 0) {
                int all = p.columns * p.groups;
                VEC mean = sum / (float)min(m.tiles * ROWS, p.rows - m.row0);
                global float *to = parts + parts_at + (long)get_global_id(1) * 2 * all + channel;
                STOREN(float, to, width, pivot + mean);
                STOREN(float, to + all, width, fmax((VEC)0, squares - sum * mean));
            }
        }
}

/* The same on dy. If dx_has_norm, also stores the sums of g and of g (z - mean) over the item's rows:
 * [item][2][channels] in parts. */
WORK_GROUP kernel void conv_backward_data(conv_gemm p, INPUT(X, x), global const float *weights, long weights_at,
                                          GRADIENT(Y, dx), global const float *mean_buffer, long mean_at,
                                          global float *parts, long parts_at) {
    local float block[BLOCK * LDA];
    VEC tiles[SWEEP * TILES][ROWS][COLUMNS];
    OPEN_INPUT(X, x);
    OPEN_GRADIENT(Y, dx);
    affine_input s = {x, x_scale, x_shift, x_ld, x_has_affine, x_act};
    work_tile m = my_work_tile(&p);
    compute(tiles, &p, m, &s, weights + weights_at, block);
    for (int n = 0; n < m.panels; n++)
        for (int j = 0; j < COLUMNS; j++) {
            int column = ((m.first_panel + n) * COLUMNS + j) * WIDTH, width = p.columns - column;
            int channel = m.group * p.columns + column;
            if (width <= 0) continue;
            VEC scale = 1, shift = 0, mean = 0, sum = 0, products = 0;
            if (dx_has_norm) {
                scale = LOADN(float, dx_scale + channel, width);
                shift = LOADN(float, dx_shift + channel, width);
                mean = LOADN(float, mean_buffer + mean_at + channel, width);
            }
            grid_point at = grid_point_of(&p, m.row0);
            for (int t = 0; t < m.tiles; t++)
                for (int i = 0; i < ROWS; i++, advance(&p, &at, 1)) {
                    if (m.row0 + t * ROWS + i >= p.rows) break;
                    long to = target_row(&p, at);
                    VEC g = tiles[n * TILES + t][i][j], old, z;
                    if (dx_accumulate) {
                        old = LOADN(float, dx + to * dx_ld + channel, width);
                        g += old;
                    }
                    if (dx_act != ACT_NONE || dx_has_norm) {
                        z = LOADN(Y, dx_y + to * dx_ld_y + channel, width);
                        g = activation_backward_v(g, z * scale + shift, dx_act);
                        sum += g;
                        products += g * (z - mean);
                    }
                    STOREN(float, dx + to * dx_ld + channel, width, g);
                }
            if (dx_has_norm && m.tiles > 0) {
                int all = p.columns * p.groups;
                global float *to = parts + parts_at + (long)get_global_id(1) * 2 * all + channel;
                STOREN(float, to, width, sum);
                STOREN(float, to + all, width, products);
            }
        }
}

/* ---- backward weights ---- */

/* Rows are elements of a run (consecutive channels of one tap), columns output channels, depth pixels. One work-item
 * sums a part of the pixels, `pixels_per_part` of them; the kernel reduce_partials adds the parts. */
#define WGRAD_BLOCK (GROUP_ROWS * TILES * WGRAD_ROWS)
#define WGRAD_PANELS (GROUP_COLUMNS * PANEL)

static inline void multiply_gradient(VEC tile[WGRAD_ROWS][COLUMNS], local const float *a, local const float *b,
                                     int count) {
    VEC sum[WGRAD_ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < WGRAD_ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum[i][j] = tile[i][j];
    for (int k = 0; k < count; k++, a += WGRAD_BLOCK, b += WGRAD_PANELS) {
        VEC w[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) w[j] = PASTE(vload, WIDTH)(j, b);
#pragma unroll
        for (int i = 0; i < WGRAD_ROWS; i++) {
            float x = a[i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += x * w[j];
        }
    }
#pragma unroll
    for (int i = 0; i < WGRAD_ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) tile[i][j] = sum[i][j];
}

/* to[0 .. PANEL - 1] = a panel of a row, zeros beyond `columns`. */
static inline void gather_panel(global const float *from, int columns, local float *to) {
    if (columns >= PANEL) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) PASTE(vstore, WIDTH)(loadv_float(from + j * WIDTH), j, to);
    } else {
        for (int n = 0; n < PANEL; n++) to[n] = n < columns ? from[n] : 0;
    }
}

/* Work-items: groups of SWEEP panels, tiles of rows (run after run), (part, convolution group). */
WORK_GROUP kernel void conv_backward_weights(conv_gemm p, INPUT(X, x), global const float *dy_buffer, long dy_at,
                                             global float *to_buffer, long to_at, int ld_dy, int blocks_per_run,
                                             int pixels_per_part, int accumulate) {
    local float block[WGRAD_DEPTH * WGRAD_BLOCK], panels[WGRAD_DEPTH * WGRAD_PANELS];
    VEC tiles[SWEEP * TILES][WGRAD_ROWS][COLUMNS];
    OPEN_INPUT(X, x);
    affine_input s = {x, x_scale, x_shift, x_ld, x_has_affine, x_act};
    int group = get_global_id(2) % p.groups, part = get_global_id(2) / p.groups;
    int run = get_group_id(1) / blocks_per_run, length = p.run_taps * p.channels;
    int block_rows = GROUP_ROWS * p.tiles * WGRAD_ROWS, block_row0 = get_group_id(1) % blocks_per_run * block_rows;
    int elements = min(block_rows, length - block_row0), my_row = get_local_id(1) * p.tiles * WGRAD_ROWS;
    int my_tiles = clamp(CEIL_DIV(elements - my_row, WGRAD_ROWS), 0, p.tiles);
    k_index here = {run / p.runs_w, run % p.runs_w, block_row0};
    int first_panel = get_global_id(0) * p.sweep, all = p.columns * p.groups;
    for (int n = 0; n < SWEEP * TILES; n++)
#pragma unroll
        for (int i = 0; i < WGRAD_ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) tiles[n][i][j] = 0;
    int end = min(p.rows, (part + 1) * pixels_per_part);
    for (int pixel = part * pixels_per_part; pixel < end; pixel += WGRAD_DEPTH) {
        int count = min(WGRAD_DEPTH, end - pixel);
        grid_point at = grid_point_of(&p, pixel + local_item());
        BARRIER();
        for (int k = local_item(); k < count; k += GROUP, advance(&p, &at, GROUP))
            gather_run(&p, &s, at, here, group, elements, block + k * WGRAD_BLOCK);
        for (int n = 0; n < p.sweep; n++) {
            BARRIER();
            for (int k = local_item(); k < count * GROUP_COLUMNS; k += GROUP) {
                int pixel_k = k / GROUP_COLUMNS, across = k % GROUP_COLUMNS;
                int column = ((get_group_id(0) * GROUP_COLUMNS + across) * p.sweep + n) * PANEL;
                gather_panel(dy_buffer + dy_at + (long)(pixel + pixel_k) * ld_dy + group * p.columns + column,
                             p.columns - column, panels + pixel_k * WGRAD_PANELS + across * PANEL);
            }
            BARRIER();
            for (int t = 0; t < my_tiles; t++)
                multiply_gradient(tiles[n * TILES + t], block + my_row + t * WGRAD_ROWS,
                                  panels + get_local_id(0) * PANEL, count);
        }
    }
    global float *to = to_buffer + to_at + (long)part * p.runs_h * p.runs_w * length * all;
    for (int n = 0; n < p.sweep; n++)
        for (int t = 0; t < my_tiles; t++)
            for (int i = 0; i < WGRAD_ROWS; i++) {
                int element = my_row + t * WGRAD_ROWS + i;
                if (element >= elements) break;
                global float *row = to + ((long)run * length + block_row0 + element) * all + group * p.columns;
                for (int j = 0; j < COLUMNS; j++) {
                    int column = ((first_panel + n) * COLUMNS + j) * WIDTH, width = p.columns - column;
                    if (width <= 0) break;
                    VEC v = tiles[n * TILES + t][i][j], old;
                    if (accumulate) {
                        old = LOADN(float, row + column, width);
                        v += old;
                    }
                    STOREN(float, row + column, width, v);
                }
            }
}
