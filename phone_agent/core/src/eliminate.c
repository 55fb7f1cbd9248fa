/* One column of a LINPACK panel, and what it does to those beside it, in one pass: a panel is too tall for the caches, and
 * then memory is the limit. Threads take some rows at a time, which stay in L1 meanwhile. */

enum { ELIMINATED_ROWS = 1024 };

INLINE i64 eliminated_chunks(const eliminate *op) { return CEIL_DIV(op->rows, ELIMINATED_ROWS); }

/* The largest size in each chunk. */
static i64 workspace_eliminate(i32 threads, const void *p) {
    (void)threads;
    return eliminated_chunks(p) * (i64)sizeof(double);
}

INLINE double size_of(double x) { return x < 0 ? -x : x; }
INLINE double_vec sizes_of(double_vec x) { return x < 0 ? -x : x; }

static NOINLINE void divide_rows(double *column, i64 rows, double pivot) {
    i64 i = 0;
    for (; i + DOUBLES <= rows; i += DOUBLES) store_doubles(column + i, load_doubles(column + i) / pivot);
    for (; i < rows; i++) column[i] /= pivot;
}

static NOINLINE void subtract_rows(double *to, const double *column, i64 rows, double factor) {
    i64 i = 0;
    for (; i + DOUBLES <= rows; i += DOUBLES) store_doubles(to + i, load_doubles(to + i) - factor * load_doubles(column + i));
    for (; i < rows; i++) to[i] -= factor * column[i];
}

static NOINLINE double largest_size(const double *column, i64 rows) {
    double_vec most = 0;
    double largest = 0;
    i64 i = 0;
    for (; i + DOUBLES <= rows; i += DOUBLES) {
        double_vec size = sizes_of(load_doubles(column + i));
        most = size > most ? size : most;
    }
    for (; i < rows; i++) largest = MAX(largest, size_of(column[i]));
    UNROLL for (i32 lane = 0; lane < DOUBLES; lane++) largest = MAX(largest, most[lane]);
    return largest;
}

/* The first row of that size; 0 where there is none, as of numbers that are not. */
static i64 row_of_size(const double *column, i64 rows, double size) {
    for (i64 i = 0; i < rows; i++)
        if (size_of(column[i]) == size) return i;
    return 0;
}

static void find_largest(const eliminate *op, const double *chunks) {
    i64 best = 0;
    for (i64 chunk = 1; chunk < eliminated_chunks(op); chunk++)
        if (chunks[chunk] > chunks[best]) best = chunk;
    i64 start = best * ELIMINATED_ROWS;
    *op->next_pivot = start + row_of_size(op->column + op->ld + start, op->rows - start, chunks[best]);
}

static void run_eliminate(worker *w, const void *p) {
    const eliminate *op = p;
    double *chunks = (double *)w->workspace;
    for (i64 chunk; (chunk = take(w)) < eliminated_chunks(op);) {
        i64 start = chunk * ELIMINATED_ROWS, rows = MIN(ELIMINATED_ROWS, op->rows - start);
        double *column = op->column + start;
        divide_rows(column, rows, op->pivot);
        for (i32 c = 0; c < op->trailing_columns; c++) subtract_rows(column + (c + 1) * op->ld, column, rows, op->factors[c]);
        if (op->trailing_columns) chunks[chunk] = largest_size(column + op->ld, rows);
    }
    meet(w);
    if (w->index == 0 && op->rows && op->trailing_columns) find_largest(op, chunks);
}
