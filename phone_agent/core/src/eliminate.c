/* Gaussian elimination with one column of a LINPACK panel, in one pass: a panel is too tall for the caches, so
 * memory is the limit. Threads process some rows at a time, which stay in the L1 cache. */

enum { ELIMINATE_CHUNK_ROWS = 1024 };

INLINE i64 eliminate_chunks(const eliminate *op) { return CEIL_DIV(op->rows, ELIMINATE_CHUNK_ROWS); }

/* The largest absolute value of each chunk. */
static i64 workspace_eliminate(i32 threads, const void *p) {
    (void)threads;
    return eliminate_chunks(p) * (i64)sizeof(double);
}

INLINE double magnitude(double x) { return x < 0 ? -x : x; }
INLINE f64_vec magnitudes(f64_vec x) { return x < 0 ? -x : x; }

static NOINLINE void divide_rows(double *column, i64 rows, double pivot) {
    i64 i = 0;
    for (; i + F64_LANES <= rows; i += F64_LANES) store_f64(column + i, load_f64(column + i) / pivot);
    for (; i < rows; i++) column[i] /= pivot;
}

static NOINLINE void subtract_rows(double *to, const double *column, i64 rows, double factor) {
    i64 i = 0;
    for (; i + F64_LANES <= rows; i += F64_LANES) store_f64(to + i, load_f64(to + i) - factor * load_f64(column + i));
    for (; i < rows; i++) to[i] -= factor * column[i];
}

static NOINLINE double max_magnitude(const double *column, i64 rows) {
    f64_vec most = 0;
    double largest = 0;
    i64 i = 0;
    for (; i + F64_LANES <= rows; i += F64_LANES) {
        f64_vec value = magnitudes(load_f64(column + i));
        most = value > most ? value : most;
    }
    for (; i < rows; i++) largest = MAX(largest, magnitude(column[i]));
    UNROLL for (i32 lane = 0; lane < F64_LANES; lane++) largest = MAX(largest, most[lane]);
    return largest;
}

/* The first row with that absolute value; 0 if there is none, which happens with NaN. */
static i64 row_of_magnitude(const double *column, i64 rows, double value) {
    for (i64 i = 0; i < rows; i++)
        if (magnitude(column[i]) == value) return i;
    return 0;
}

static void find_pivot(const eliminate *op, const double *chunks) {
    i64 best = 0;
    for (i64 chunk = 1; chunk < eliminate_chunks(op); chunk++)
        if (chunks[chunk] > chunks[best]) best = chunk;
    i64 start = best * ELIMINATE_CHUNK_ROWS;
    *op->next_pivot = start + row_of_magnitude(op->column + op->ld + start, op->rows - start, chunks[best]);
}

static void run_eliminate(worker *w, const void *p) {
    const eliminate *op = p;
    double *chunks = (double *)w->workspace;
    for (i64 chunk; (chunk = next_tile(w)) < eliminate_chunks(op);) {
        i64 start = chunk * ELIMINATE_CHUNK_ROWS, rows = MIN(ELIMINATE_CHUNK_ROWS, op->rows - start);
        double *column = op->column + start;
        divide_rows(column, rows, op->pivot);
        for (i32 c = 0; c < op->trailing_columns; c++)
            subtract_rows(column + (c + 1) * op->ld, column, rows, op->factors[c]);
        if (op->trailing_columns) chunks[chunk] = max_magnitude(column + op->ld, rows);
    }
    barrier(w);
    if (w->index == 0 && op->rows && op->trailing_columns) find_pivot(op, chunks);
}
