/* Matrices in double precision: C (+)= alpha A^T B, for LINPACK.
 *
 * Both operands are packed, DOUBLE_DEPTH rows of them at a time: A whole, B as many columns as a strip has, each into panels as
 * wide as the register tile, padded with zeros. Then threads take blocks of C: of A's panels what L2 holds, times one
 * panel of B after the other. */

_Static_assert(DOUBLE_BLOCK_ROWS % DOUBLE_ROWS == 0 && DOUBLE_BLOCK_COLUMNS % DOUBLE_COLUMNS == 0, "blocks hold whole tiles");

/* Panels packed together: a row of the matrix is read some cache lines at a time. And blocks in a strip. */
enum { PANELS_AT_ONCE = 4, STRIP_BLOCKS = 4, STRIP_COLUMNS = STRIP_BLOCKS * DOUBLE_BLOCK_COLUMNS };

/* As deep as others of about the same depth: 192 rows are 96 twice, not 128 and 64. */
INLINE i64 depth_at_once(i64 depth) {
    i64 parts = CEIL_DIV(depth, DOUBLE_DEPTH);
    return parts ? CEIL_DIV(depth, parts) : 0;
}
/* Of A, packed: whole cache lines, so that the panels of B behind it start on one. */
INLINE i64 packed_left(const dgemm *op) {
    enum { LINE = 8 };
    return ROUND_UP(depth_at_once(op->depth) * ROUND_UP(op->rows, DOUBLE_ROWS), LINE);
}

static i64 workspace_dgemm(i32 threads, const void *p) {
    (void)threads;
    const dgemm *op = p;
    i64 columns = MIN(ROUND_UP(op->columns, DOUBLE_COLUMNS), STRIP_COLUMNS);
    return (packed_left(op) + depth_at_once(op->depth) * columns) * (i64)sizeof(double);
}

/* One row of one panel: to[0 .. width) = factor * from, and zeros from `count` on. `width` is a constant. */
INLINE void pack_row(const double *from, i64 count, double *to, i32 width, double factor) {
    if (count >= width) {
        UNROLL for (i32 i = 0; i < width; i++) to[i] = factor * from[i];
        return;
    }
    for (i32 i = 0; i < width; i++) to[i] = i < count ? factor * from[i] : 0;
}

/* Panels `first` .. of a matrix with `depth` rows, as many as are packed together. */
INLINE void pack_panels(const double *from, i64 ld, i64 count, i64 depth, i64 first, double *to, i32 width, double factor) {
    i64 last = MIN(first + PANELS_AT_ONCE, CEIL_DIV(count, width));
    for (i64 k = 0; k < depth; k++)
        for (i64 panel = first; panel < last; panel++)
            pack_row(from + k * ld + panel * width, count - panel * width, to + (panel * depth + k) * width, width, factor);
}

static NOINLINE void pack_left(const dgemm *op, i64 k, i64 depth, i64 group, double *to) {
    pack_panels(op->a + k * op->lda, op->lda, op->rows, depth, group * PANELS_AT_ONCE, to, DOUBLE_ROWS, op->alpha);
}

static NOINLINE void pack_right(const dgemm *op, i64 k, i64 depth, i64 column, i64 columns, i64 group, double *to) {
    const double *from = op->b + k * op->ldb + column;
    pack_panels(from, op->ldb, columns, depth, group * PANELS_AT_ONCE, to, DOUBLE_COLUMNS, 1);
}

/* A tile that hangs over the edge of C. */
static NOINLINE void edge_tile(i64 depth, const double *a, const double *b, double *c, i64 ldc, i64 rows, i64 columns, i32 accumulate) {
    double tile[DOUBLE_ROWS * DOUBLE_COLUMNS];
    double_tile(depth, a, b, tile, DOUBLE_COLUMNS, 0);
    for (i64 i = 0; i < rows; i++) {
        double *to = c + i * ldc;
        const double *from = tile + i * DOUBLE_COLUMNS;
        if (accumulate) for (i64 j = 0; j < columns; j++) to[j] += from[j];
        else for (i64 j = 0; j < columns; j++) to[j] = from[j];
    }
}

static void multiply_block(const dgemm *op, i64 depth, const double *left, const double *right, i64 row, i64 column, i64 rows,
                           i64 columns, i32 accumulate) {
    for (i64 j = 0; j < columns; j += DOUBLE_COLUMNS) {
        for (i64 i = 0; i < rows; i += DOUBLE_ROWS) {
            const double *a = left + i * depth, *b = right + j * depth;
            double *c = op->c + (row + i) * op->ldc + column + j;
            if (rows - i >= DOUBLE_ROWS && columns - j >= DOUBLE_COLUMNS) double_tile(depth, a, b, c, op->ldc, accumulate);
            else edge_tile(depth, a, b, c, op->ldc, MIN(rows - i, DOUBLE_ROWS), MIN(columns - j, DOUBLE_COLUMNS), accumulate);
        }
    }
}

/* Blocks of one strip of C, dealt out as they come. */
static void multiply_strip(const dgemm *op, worker *w, i64 depth, const double *left, const double *right, i64 column, i64 columns,
                           i32 accumulate) {
    i64 across = CEIL_DIV(columns, DOUBLE_BLOCK_COLUMNS), blocks = across * CEIL_DIV(op->rows, DOUBLE_BLOCK_ROWS);
    for (i64 block; (block = take(w)) < blocks;) {
        i64 i = block / across * DOUBLE_BLOCK_ROWS, j = block % across * DOUBLE_BLOCK_COLUMNS;
        multiply_block(op, depth, left + i * depth, right + j * depth, i, column + j, MIN(op->rows - i, DOUBLE_BLOCK_ROWS),
                       MIN(columns - j, DOUBLE_BLOCK_COLUMNS), accumulate);
    }
}

static void clear_result(const dgemm *op, worker *w) {
    for (i64 i; (i = take(w)) < op->rows;)
        for (i64 j = 0; j < op->columns; j++) op->c[i * op->ldc + j] = 0;
}

static void run_dgemm(worker *w, const void *p) {
    const dgemm *op = p;
    if (!op->depth && !op->accumulate) clear_result(op, w);
    double *left = (double *)w->workspace, *right = left + packed_left(op);
    for (i64 k = 0, depth; k < op->depth; k += depth) {
        depth = MIN(depth_at_once(op->depth), op->depth - k);
        i64 lefts = CEIL_DIV(op->rows, PANELS_AT_ONCE * DOUBLE_ROWS);
        for (i64 column = 0; column < op->columns; column += STRIP_COLUMNS) {
            i64 columns = MIN(STRIP_COLUMNS, op->columns - column);
            i64 rights = CEIL_DIV(columns, PANELS_AT_ONCE * DOUBLE_COLUMNS), first = column ? 0 : lefts;
            for (i64 group; (group = take(w)) < first + rights;) {
                if (group < first) pack_left(op, k, depth, group, left);
                else pack_right(op, k, depth, column, columns, group - first, right);
            }
            meet(w);
            multiply_strip(op, w, depth, left, right, column, columns, op->accumulate || k);
            meet(w);
        }
    }
}
