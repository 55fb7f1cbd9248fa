/* Convolution as a product of matrices, without writing the matrix of its windows anywhere.
 *
 * Forward: rows are output pixels, columns output channels, depth (tap, input channel). Backward to the data is the same
 * on dy: rows are input pixels, columns input channels, depth (tap, output channel); with a stride, the input pixels fall
 * into phases that different taps reach, each a product of its own. Weights come packed in panels (pack_weights).
 *
 * A work-item computes a tile in registers: ROWS rows times COLUMNS vectors of WIDTH channels; up to TILES tiles of rows
 * times SWEEP of columns, one after the other. A work-group (GROUP_ROWS times GROUP_COLUMNS items) gathers DEPTH numbers of
 * each of its rows into local memory, as their readers see them, and zeros where a tap lies outside the image. */

#define PANEL (COLUMNS * WIDTH) /* channels of a tile */
#define BLOCK (GROUP_ROWS * TILES * ROWS)
#define GROUP (GROUP_ROWS * GROUP_COLUMNS)
#define LDA (DEPTH + 4) /* rows of a block must not all fall into the same sets of a cache */

#if GROUP > 1
#define MEET() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define MEET()
#endif

/* What a product reads and writes. Grid point (h, w) of an image has run (i, j) of its depth start at pixel
 * (h * stride + offset_h + i * spacing_h, w * stride + offset_w + j * spacing_w): `run_taps` pixels side by side, `channels`
 * numbers of each. Its result is pixel (to_first_h + h * to_step, to_first_w + w * to_step). */
typedef struct {
    int rows, grid_h, grid_w, from_h, from_w, channels, groups;
    int runs_h, runs_w, run_taps, stride, offset_h, offset_w, spacing_h, spacing_w;
    int to_h, to_w, to_first_h, to_first_w, to_step;
    int columns, panels, depth, tiles, sweep, packed, ld_weights;
} product;

/* Where a grid point lies. */
typedef struct {
    int image, y, x;
} point;

static inline point point_of(const product *p, int row) {
    int line = row / p->grid_w;
    point at;
    at.x = row - line * p->grid_w;
    at.image = line / p->grid_h;
    at.y = line - at.image * p->grid_h;
    return at;
}

/* `step` grid points on: cheaper than a division where the step is small. */
static inline void advance(const product *p, point *at, int step) {
    for (at->x += step; at->x >= p->grid_w; at->x -= p->grid_w)
        if (++at->y == p->grid_h) {
            at->y = 0;
            at->image++;
        }
}

static inline long target_row(const product *p, point at) {
    return ((long)at.image * p->to_h + p->to_first_h + at.y * p->to_step) * p->to_w + p->to_first_w + at.x * p->to_step;
}

/* How sources are read: what does not change from number to number. */
typedef struct {
    global const X *data;
    global const float *scale, *shift;
    int ld, scaled, act;
} seeing;

/* A place in the depth: run (i, j), number c of it. */
typedef struct {
    int i, j, c;
} spot;

static inline spot spot_of(const product *p, int k) {
    int length = p->run_taps * p->channels, run = k / length;
    spot at = {run / p->runs_w, run % p->runs_w, k - run * length};
    return at;
}

/* to[0 .. count) = numbers from `at` on as seen, channel c first. */
static inline void see_run(const seeing *s, global const X *at, int c, int count, local float *to) {
    int k = 0;
    if (s->scaled) {
        for (; k + WIDTH <= count; k += WIDTH) {
            VEC scale = loadv_float(s->scale + c + k), shift = loadv_float(s->shift + c + k);
            JOINED(vstore, WIDTH)(activate_v(LOADV(X, at + k) * scale + shift, s->act), 0, to + k);
        }
    } else {
        for (; k + WIDTH <= count; k += WIDTH) JOINED(vstore, WIDTH)(LOADV(X, at + k), 0, to + k);
    }
    for (; k < count; k++) to[k] = see(LOAD(X, at, k), s->scaled, s->scale, s->shift, c + k, s->act);
}

static inline void zero_run(local float *to, int first, int last) {
    for (; first + 4 <= last; first += 4) vstore4((float4)0, 0, to + first);
    for (; first < last; first++) to[first] = 0;
}

/* to[0 .. count) = so many numbers of one run of a grid point; zeros where its pixels lie outside the image. */
static inline void gather_run(const product *p, const seeing *s, point at, spot k, int group, int count, local float *to) {
    int y = at.y * p->stride + p->offset_h + k.i * p->spacing_h, x = at.x * p->stride + p->offset_w + k.j * p->spacing_w;
    int first = 0, last = 0;
    if (y >= 0 && y < p->from_h) {
        first = clamp(-x * p->channels - k.c, 0, count);
        last = clamp((p->from_w - x) * p->channels - k.c, first, count);
    }
    long pixel = ((long)at.image * p->from_h + y) * p->from_w + x;
    int c = group * p->channels + k.c;
    zero_run(to, 0, first);
    see_run(s, s->data + pixel * s->ld + c + first, c + first, last - first, to + first);
    zero_run(to, last, count);
}

/* to[0 .. count) = so many numbers of the depth of a grid point. */
static inline void gather(const product *p, const seeing *s, point at, spot k, int group, int count, local float *to) {
    int length = p->run_taps * p->channels;
    while (count > 0) {
        int numbers = min(length - k.c, count);
        gather_run(p, s, at, k, group, numbers, to);
        to += numbers;
        count -= numbers;
        k.c = 0;
        if (++k.j == p->runs_w) {
            k.j = 0;
            k.i++;
        }
    }
}

/* tile += rows of `block` times a panel, `count` deep. */
static inline void multiply(VEC tile[ROWS][COLUMNS], local const float *block, global const float *panel, int ld, int count) {
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

/* What an item computes: tiles[panel * TILES + row tile]. */
typedef struct {
    int first_panel, panels, row0, tiles, group;
} share;

static inline share my_share(const product *p) {
    share m;
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

static inline void compute(VEC tiles[SWEEP * TILES][ROWS][COLUMNS], const product *p, share m, const seeing *s,
                           global const float *weights, local float *block) {
    int rows = GROUP_ROWS * p->tiles * ROWS, row0 = get_group_id(1) * rows;
    rows = min(rows, p->rows - row0);
    local const float *mine = block + get_local_id(1) * p->tiles * ROWS * LDA;
    clear(tiles);
    for (int k = 0; k < p->depth; k += DEPTH) {
        int count = min(DEPTH, p->depth - k);
        spot here = spot_of(p, k);
        point at = point_of(p, row0 + local_item());
        MEET();
        for (int r = local_item(); r < rows; r += GROUP, advance(p, &at, GROUP))
            gather(p, s, at, here, m.group, count, block + r * LDA);
        MEET();
        for (int n = 0; n < m.panels; n++) {
            int panel = m.first_panel + n;
            global const float *from = weights + (p->packed ? (((long)m.group * p->panels + panel) * p->depth + k) * PANEL
                                                            : (long)k * p->ld_weights + m.group * p->columns + panel * PANEL);
            for (int t = 0; t < m.tiles; t++)
                multiply(tiles[n * TILES + t], mine + t * ROWS * LDA, from, p->packed ? PANEL : p->ld_weights, count);
        }
    }
}

#define ITEM __attribute__((reqd_work_group_size(GROUP_COLUMNS, GROUP_ROWS, 1)))

/* Work-items: sweeps of panels, tiles of rows, groups. With `counts`, also the mean of the item's rows by channel and the sum
 * of squares about it: [item][2][channels] in parts. */
ITEM kernel void convolve_forward(product p, SOURCE(X, x), global const float *weights, long weights_at,
                                  global const float *bias_buffer, long bias_at, global Y *y, long y_at,
                                  global float *parts, long parts_at, int ld_y, int act, int has_bias, int counts) {
    local float block[BLOCK * LDA];
    VEC tiles[SWEEP * TILES][ROWS][COLUMNS];
    OPEN_SOURCE(X, x);
    seeing s = {x, x_scale, x_shift, x_ld, x_scaled, x_act};
    share m = my_share(&p);
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
            if (counts && m.tiles > 0) {
                int all = p.columns * p.groups;
                VEC mean = sum / (float)min(m.tiles * ROWS, p.rows - m.row0);
                global float *to = parts + parts_at + (long)get_global_id(1) * 2 * all + channel;
                STOREN(float, to, width, pivot + mean);
                STOREN(float, to + all, width, fmax((VEC)0, squares - sum * mean));
            }
        }
}

/* The same on dy. With dx_normed, also the sums of g and of g (z - mean) of the item's rows: [item][2][channels] in parts. */
ITEM kernel void convolve_backward(product p, SOURCE(X, x), global const float *weights, long weights_at, SINK(Y, dx),
                                   global const float *mean_buffer, long mean_at, global float *parts, long parts_at) {
    local float block[BLOCK * LDA];
    VEC tiles[SWEEP * TILES][ROWS][COLUMNS];
    OPEN_SOURCE(X, x);
    OPEN_SINK(Y, dx);
    seeing s = {x, x_scale, x_shift, x_ld, x_scaled, x_act};
    share m = my_share(&p);
    compute(tiles, &p, m, &s, weights + weights_at, block);
    for (int n = 0; n < m.panels; n++)
        for (int j = 0; j < COLUMNS; j++) {
            int column = ((m.first_panel + n) * COLUMNS + j) * WIDTH, width = p.columns - column;
            int channel = m.group * p.columns + column;
            if (width <= 0) continue;
            VEC scale = 1, shift = 0, mean = 0, sum = 0, products = 0;
            if (dx_normed) {
                scale = LOADN(float, dx_scale + channel, width);
                shift = LOADN(float, dx_shift + channel, width);
                mean = LOADN(float, mean_buffer + mean_at + channel, width);
            }
            point at = point_of(&p, m.row0);
            for (int t = 0; t < m.tiles; t++)
                for (int i = 0; i < ROWS; i++, advance(&p, &at, 1)) {
                    if (m.row0 + t * ROWS + i >= p.rows) break;
                    long to = target_row(&p, at);
                    VEC g = tiles[n * TILES + t][i][j], old, z;
                    if (dx_accumulate) {
                        old = LOADN(float, dx + to * dx_ld + channel, width);
                        g += old;
                    }
                    if (dx_act != ACT_NONE || dx_normed) {
                        z = LOADN(Y, dx_y + to * dx_ld_y + channel, width);
                        g = passed_v(g, z * scale + shift, dx_act);
                        sum += g;
                        products += g * (z - mean);
                    }
                    STOREN(float, dx + to * dx_ld + channel, width, g);
                }
            if (dx_normed && m.tiles > 0) {
                int all = p.columns * p.groups;
                global float *to = parts + parts_at + (long)get_global_id(1) * 2 * all + channel;
                STOREN(float, to, width, sum);
                STOREN(float, to + all, width, products);
            }
        }
}

/* --- backward to the weights --------------------------------------------------------------------------------- */

/* Rows are numbers of a run (consecutive channels of one tap), columns output channels, depth the pixels. A part of the
 * pixels, its `share` in `depth_each`, goes to one item; the sums of all parts are added up by add_parts. */
#define GRADIENT_BLOCK (GROUP_ROWS * TILES * GRADIENT_ROWS)
#define GRADIENT_PANELS (GROUP_COLUMNS * PANEL)

static inline void multiply_gradient(VEC tile[GRADIENT_ROWS][COLUMNS], local const float *a, local const float *b, int count) {
    VEC sum[GRADIENT_ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < GRADIENT_ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum[i][j] = tile[i][j];
    for (int k = 0; k < count; k++, a += GRADIENT_BLOCK, b += GRADIENT_PANELS) {
        VEC w[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) w[j] = JOINED(vload, WIDTH)(j, b);
#pragma unroll
        for (int i = 0; i < GRADIENT_ROWS; i++) {
            float x = a[i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += x * w[j];
        }
    }
#pragma unroll
    for (int i = 0; i < GRADIENT_ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) tile[i][j] = sum[i][j];
}

/* to[0 .. PANEL) = a panel of a row; zeros beyond `columns`. */
static inline void gather_panel(global const float *from, int columns, local float *to) {
    if (columns >= PANEL) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) JOINED(vstore, WIDTH)(loadv_float(from + j * WIDTH), j, to);
    } else {
        for (int n = 0; n < PANEL; n++) to[n] = n < columns ? from[n] : 0;
    }
}

/* Work-items: sweeps of panels, tiles of rows (run after run), (part, group). */
ITEM kernel void convolve_weights(product p, SOURCE(X, x), global const float *dy_buffer, long dy_at, global float *to_buffer,
                                  long to_at, int ld_dy, int blocks_a_run, int pixels_each, int accumulate) {
    local float block[GRADIENT_DEPTH * GRADIENT_BLOCK], panels[GRADIENT_DEPTH * GRADIENT_PANELS];
    VEC tiles[SWEEP * TILES][GRADIENT_ROWS][COLUMNS];
    OPEN_SOURCE(X, x);
    seeing s = {x, x_scale, x_shift, x_ld, x_scaled, x_act};
    int group = get_global_id(2) % p.groups, part = get_global_id(2) / p.groups;
    int run = get_group_id(1) / blocks_a_run, length = p.run_taps * p.channels;
    int block_rows = GROUP_ROWS * p.tiles * GRADIENT_ROWS, block_row0 = get_group_id(1) % blocks_a_run * block_rows;
    int numbers = min(block_rows, length - block_row0), my_row = get_local_id(1) * p.tiles * GRADIENT_ROWS;
    int my_tiles = clamp(CEIL_DIV(numbers - my_row, GRADIENT_ROWS), 0, p.tiles);
    spot here = {run / p.runs_w, run % p.runs_w, block_row0};
    int first_panel = get_global_id(0) * p.sweep, all = p.columns * p.groups;
    for (int n = 0; n < SWEEP * TILES; n++)
#pragma unroll
        for (int i = 0; i < GRADIENT_ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) tiles[n][i][j] = 0;
    int end = min(p.rows, (part + 1) * pixels_each);
    for (int pixel = part * pixels_each; pixel < end; pixel += GRADIENT_DEPTH) {
        int count = min(GRADIENT_DEPTH, end - pixel);
        point at = point_of(&p, pixel + local_item());
        MEET();
        for (int k = local_item(); k < count; k += GROUP, advance(&p, &at, GROUP))
            gather_run(&p, &s, at, here, group, numbers, block + k * GRADIENT_BLOCK);
        for (int n = 0; n < p.sweep; n++) {
            MEET();
            for (int k = local_item(); k < count * GROUP_COLUMNS; k += GROUP) {
                int pixel_k = k / GROUP_COLUMNS, across = k % GROUP_COLUMNS;
                int column = ((get_group_id(0) * GROUP_COLUMNS + across) * p.sweep + n) * PANEL;
                gather_panel(dy_buffer + dy_at + (long)(pixel + pixel_k) * ld_dy + group * p.columns + column,
                             p.columns - column, panels + pixel_k * GRADIENT_PANELS + across * PANEL);
            }
            MEET();
            for (int t = 0; t < my_tiles; t++)
                multiply_gradient(tiles[n * TILES + t], block + my_row + t * GRADIENT_ROWS,
                                  panels + get_local_id(0) * PANEL, count);
        }
    }
    global float *to = to_buffer + to_at + (long)part * p.runs_h * p.runs_w * length * all;
    for (int n = 0; n < p.sweep; n++)
        for (int t = 0; t < my_tiles; t++)
            for (int i = 0; i < GRADIENT_ROWS; i++) {
                int number = my_row + t * GRADIENT_ROWS + i;
                if (number >= numbers) break;
                global float *row = to + ((long)run * length + block_row0 + number) * all + group * p.columns;
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
