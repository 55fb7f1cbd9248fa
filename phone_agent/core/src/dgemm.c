/* Double-precision GEMM for LINPACK: C (+)= alpha A^T B.
 *
 * Both operands are packed, F64_BLOCK_DEPTH rows at a time: all of A, and of B the columns of one strip, into panels
 * as wide as the register tile, padded with zeros. Then threads process blocks of C: the panels of A that fit into
 * L2, times one panel of B after the other. */

_Static_assert(F64_BLOCK_ROWS % F64_MR == 0 && F64_BLOCK_COLUMNS % F64_NR == 0, "blocks hold whole tiles");

/* Panels packed together, so that a row of the matrix is read several cache lines at a time; and blocks per strip. */
enum { PACK_PANELS = 4, STRIP_BLOCKS = 4, STRIP_COLUMNS = STRIP_BLOCKS * F64_BLOCK_COLUMNS };

/* Equal depths for all parts: 192 rows are twice 96, not 128 and 64. */
INLINE i64 block_depth(i64 depth) {
    i64 parts = CEIL_DIV(depth, F64_BLOCK_DEPTH);
    return parts ? CEIL_DIV(depth, parts) : 0;
}
/* Size of packed A: whole cache lines, so that the panels of B behind it start on one. */
INLINE i64 packed_a_doubles(const dgemm *op) {
    enum { CACHE_LINE = 8 };
    return ROUND_UP(block_depth(op->depth) * ROUND_UP(op->rows, F64_MR), CACHE_LINE);
}

static i64 workspace_dgemm(i32 threads, const void *p) {
    (void)threads;
    const dgemm *op = p;
    i64 columns = MIN(ROUND_UP(op->columns, F64_NR), STRIP_COLUMNS);
    return (packed_a_doubles(op) + block_depth(op->depth) * columns) * (i64)sizeof(double);
}

/* One row of one panel: to[0 .. width - 1] = factor * from, zeros from `count` on. `width` is a constant. */
INLINE void pack_row(const double *from, i64 count, double *to, i32 width, double factor) {
    if (count >= width) {
        UNROLL for (i32 i = 0; i < width; i++) to[i] = factor * from[i];
        return;
    }
    for (i32 i = 0; i < width; i++) to[i] = i < count ? factor * from[i] : 0;
}

/* Pack PACK_PANELS panels from `first` on of a matrix with `depth` rows. */
INLINE void pack_panels(const double *from, i64 ld, i64 count, i64 depth, i64 first, double *to, i32 width,
                        double factor) {
    i64 last = MIN(first + PACK_PANELS, CEIL_DIV(count, width));
    for (i64 k = 0; k < depth; k++)
        for (i64 panel = first; panel < last; panel++)
            pack_row(from + k * ld + panel * width, count - panel * width, to + (panel * depth + k) * width, width,
                     factor);
}

static NOINLINE void pack_a(const dgemm *op, i64 k, i64 depth, i64 group, double *to) {
    pack_panels(op->a + k * op->lda, op->lda, op->rows, depth, group * PACK_PANELS, to, F64_MR, op->alpha);
}

static NOINLINE void pack_b(const dgemm *op, i64 k, i64 depth, i64 column, i64 columns, i64 group, double *to) {
    const double *from = op->b + k * op->ldb + column;
    pack_panels(from, op->ldb, columns, depth, group * PACK_PANELS, to, F64_NR, 1);
}

/* A tile that extends beyond the edge of C. */
static NOINLINE void edge_tile(i64 depth, const double *a, const double *b, double *c, i64 ldc, i64 rows, i64 columns,
                               i32 accumulate) {
    double tile[F64_MR * F64_NR];
    f64_gemm(depth, a, b, tile, F64_NR, 0);
    for (i64 i = 0; i < rows; i++) {
        double *to = c + i * ldc;
        const double *from = tile + i * F64_NR;
        if (accumulate)
            for (i64 j = 0; j < columns; j++) to[j] += from[j];
        else
            for (i64 j = 0; j < columns; j++) to[j] = from[j];
    }
}

static void dgemm_block(const dgemm *op, i64 depth, const double *packed_a, const double *packed_b, i64 row, i64 column,
                        i64 rows, i64 columns, i32 accumulate) {
    for (i64 j = 0; j < columns; j += F64_NR) {
        for (i64 i = 0; i < rows; i += F64_MR) {
            const double *a = packed_a + i * depth, *b = packed_b + j * depth;
            double *c = op->c + (row + i) * op->ldc + column + j;
            if (rows - i >= F64_MR && columns - j >= F64_NR) f64_gemm(depth, a, b, c, op->ldc, accumulate);
            else edge_tile(depth, a, b, c, op->ldc, MIN(rows - i, F64_MR), MIN(columns - j, F64_NR), accumulate);
        }
    }
}

/* Blocks of one strip of C, scheduled dynamically. */
static void dgemm_strip(const dgemm *op, worker *w, i64 depth, const double *packed_a, const double *packed_b,
                        i64 column, i64 columns, i32 accumulate) {
    i64 across = CEIL_DIV(columns, F64_BLOCK_COLUMNS), blocks = across * CEIL_DIV(op->rows, F64_BLOCK_ROWS);
    for (i64 block; (block = next_tile(w)) < blocks;) {
        i64 i = block / across * F64_BLOCK_ROWS, j = block % across * F64_BLOCK_COLUMNS;
        dgemm_block(op, depth, packed_a + i * depth, packed_b + j * depth, i, column + j,
                    MIN(op->rows - i, F64_BLOCK_ROWS), MIN(columns - j, F64_BLOCK_COLUMNS), accumulate);
    }
}

static void clear_result(const dgemm *op, worker *w) {
    for (i64 i; (i = next_tile(w)) < op->rows;)
        for (i64 j = 0; j < op->columns; j++) op->c[i * op->ldc + j] = 0;
}

static void run_dgemm(worker *w, const void *p) {
    const dgemm *op = p;
    if (!op->depth && !op->accumulate) clear_result(op, w);
    double *packed_a = (double *)w->workspace, *packed_b = packed_a + packed_a_doubles(op);
    for (i64 k = 0, depth; k < op->depth; k += depth) {
        depth = MIN(block_depth(op->depth), op->depth - k);
        i64 a_groups = CEIL_DIV(op->rows, PACK_PANELS * F64_MR);
        for (i64 column = 0; column < op->columns; column += STRIP_COLUMNS) {
            i64 columns = MIN(STRIP_COLUMNS, op->columns - column);
            i64 b_groups = CEIL_DIV(columns, PACK_PANELS * F64_NR), first = column ? 0 : a_groups;
            for (i64 group; (group = next_tile(w)) < first + b_groups;) {
                if (group < first) pack_a(op, k, depth, group, packed_a);
                else pack_b(op, k, depth, column, columns, group - first, packed_b);
            }
            barrier(w);
            dgemm_strip(op, w, depth, packed_a, packed_b, column, columns, op->accumulate || k);
            barrier(w);
        }
    }
}
