/* Low-rank gradient compression (PowerSGD): matrix ~ left x right. Each kernel is one pass over the matrix.
 *
 * What the ranks must agree on to the bit (the orthonormalized factor, and the matrix that reconstruct leaves) is
 * computed in the same order for every vector length, and each product goes into a single sum. So it is identical on
 * all processors with fused multiply-add, which all phones have. */

/* Rows and columns of a tile of the matrix, and columns of a factor tile. */
enum { LOWRANK_TILE_ROWS = 32, LOWRANK_TILE_COLUMNS = 512, FACTOR_TILE_COLUMNS = 128 };

/* Some columns of the right factor, for all rows of a tile. A copy, because rows of 4096 columns map to few cache
 * sets. */
typedef struct {
    float row[MAX_RANK][FACTOR_TILE_COLUMNS];
} factor_tile;

#define FOR_COLUMNS(first, last) for (i32 c = (first), lanes; lanes = MIN(LANES, (last) - c), c < (last); c += LANES)

INLINE float lane_sum(vec v) {
    UNROLL for (i32 half = LANES / 2; half; half /= 2) UNROLL for (i32 i = 0; i < half; i++) v[i] += v[i + half];
    return v[0];
}

INLINE void load_factor_tile(factor_tile *to, const float *right, i32 columns, i32 first, i32 last, i32 rank) {
    UNROLL for (i32 k = 0; k < rank; k++) FOR_COLUMNS (first, last)
        store_lanes(to->row[k] + c - first, load_lanes(right + (i64)k * columns + c, lanes), lanes);
}

/* Whole vectors and the tail are separate calls, as in reconstruct_row. Merged, the compiler would combine their
 * products in another order. */
INLINE void sketch_vector(vec *sums, float *matrix, const float *residual, const factor_tile *right, i32 offset,
                          i32 lanes, i32 rank) {
    prefetch_page_ahead(matrix);
    prefetch_page_ahead(residual);
    vec v = load_lanes(matrix, lanes) + load_lanes(residual, lanes);
    store_lanes(matrix, v, lanes);
    UNROLL for (i32 k = 0; k < rank; k++) sums[k] += v * load_lanes(right->row[k] + offset, lanes);
}

/* For some columns: matrix += residual; left += matrix x right^T, or = for the first columns. */
INLINE void sketch_row(const low_rank *op, const factor_tile *right, i64 row_index, i32 first, i32 last, i32 rank) {
    float *matrix = op->matrix + row_index * op->columns;
    const float *residual = op->residual + row_index * op->columns;
    vec sums[MAX_RANK];
    UNROLL for (i32 k = 0; k < rank; k++) sums[k] = 0;
    i32 c = first;
    for (; c + LANES <= last; c += LANES) sketch_vector(sums, matrix + c, residual + c, right, c - first, LANES, rank);
    if (c < last) sketch_vector(sums, matrix + c, residual + c, right, c - first, last - c, rank);
    float *left = op->left + row_index * rank;
    UNROLL for (i32 k = 0; k < rank; k++) left[k] = (first ? left[k] : 0) + lane_sum(sums[k]);
}
INLINE void sketch_tile(const low_rank *op, i64 tile, i32 rank) {
    i64 begin = tile * LOWRANK_TILE_ROWS, end = MIN(op->rows, begin + LOWRANK_TILE_ROWS);
    factor_tile right;
    for (i32 first = 0; first < op->columns; first += FACTOR_TILE_COLUMNS) {
        i32 last = MIN(op->columns, first + FACTOR_TILE_COLUMNS);
        load_factor_tile(&right, op->right, op->columns, first, last, rank);
        for (i64 row_index = begin; row_index < end; row_index++) sketch_row(op, &right, row_index, first, last, rank);
    }
}

/* One vector of columns: right += left^T x some rows of the matrix. */
INLINE void project_vector(const low_rank *op, i64 row_index, i64 last, i32 c, i32 lanes, i32 rank) {
    vec sums[MAX_RANK];
    UNROLL for (i32 k = 0; k < rank; k++) sums[k] = 0;
    for (i64 i = row_index; i < last; i++) {
        vec v = load_lanes(op->matrix + i * op->columns + c, lanes);
        UNROLL for (i32 k = 0; k < rank; k++) sums[k] += op->left[i * rank + k] * v;
    }
    UNROLL for (i32 k = 0; k < rank; k++) {
        float *to = op->right + (i64)k * op->columns + c;
        store_lanes(to, row_index ? load_lanes(to, lanes) + sums[k] : sums[k], lanes);
    }
}

INLINE void project_tile(const low_rank *op, i64 tile, i32 rank) {
    i32 first = (i32)tile * LOWRANK_TILE_COLUMNS, last = MIN(op->columns, first + LOWRANK_TILE_COLUMNS);
    for (i64 row_index = 0; row_index < op->rows; row_index += LOWRANK_TILE_ROWS) {
        i64 end = MIN(op->rows, row_index + LOWRANK_TILE_ROWS);
        FOR_COLUMNS (first, last) {
            if (lanes == LANES) project_vector(op, row_index, end, c, LANES, rank);
            else project_vector(op, row_index, end, c, lanes, rank);
        }
    }
}

/* One vector or two: a sum waits for the previous product, and two sums wait at the same time. */
INLINE void reconstruct_vectors(float *matrix, float *residual, const float *left, const factor_tile *local_right,
                                const factor_tile *right, i32 offset, i32 count, i32 lanes, i32 rank) {
    vec rest[2], all[2];
    UNROLL for (i32 i = 0; i < count; i++) {
        prefetch_page_ahead(matrix + i * LANES);
        prefetch_page_ahead(residual + i * LANES);
        rest[i] = load_lanes(matrix + i * LANES, lanes);
        all[i] = 0;
    }
    UNROLL for (i32 k = 0; k < rank; k++) UNROLL for (i32 i = 0; i < count; i++) {
        rest[i] -= left[k] * load_lanes(local_right->row[k] + offset + i * LANES, lanes);
        all[i] += left[k] * load_lanes(right->row[k] + offset + i * LANES, lanes);
    }
    UNROLL for (i32 i = 0; i < count; i++) {
        store_lanes(residual + i * LANES, rest[i], lanes);
        store_lanes(matrix + i * LANES, all[i], lanes);
    }
}

/* For some columns: residual = matrix - left x local_right; matrix = left x right. */
INLINE void reconstruct_row(const low_rank *op, const factor_tile *local_right, const factor_tile *right, i64 row_index,
                            i32 first, i32 last, i32 rank) {
    float *matrix = op->matrix + row_index * op->columns, *residual = op->residual + row_index * op->columns;
    const float *left = op->left + row_index * rank;
    i32 c = first;
    for (; c + 2 * LANES <= last; c += 2 * LANES)
        reconstruct_vectors(matrix + c, residual + c, left, local_right, right, c - first, 2, LANES, rank);
    if (c + LANES <= last) {
        reconstruct_vectors(matrix + c, residual + c, left, local_right, right, c - first, 1, LANES, rank);
        c += LANES;
    }
    if (c < last) reconstruct_vectors(matrix + c, residual + c, left, local_right, right, c - first, 1, last - c, rank);
}
INLINE void reconstruct_tile(const low_rank *op, i64 tile, i32 rank) {
    i64 begin = tile * LOWRANK_TILE_ROWS, end = MIN(op->rows, begin + LOWRANK_TILE_ROWS);
    factor_tile local_right, right;
    for (i32 first = 0; first < op->columns; first += FACTOR_TILE_COLUMNS) {
        i32 last = MIN(op->columns, first + FACTOR_TILE_COLUMNS);
        load_factor_tile(&local_right, op->local_right, op->columns, first, last, rank);
        load_factor_tile(&right, op->right, op->columns, first, last, rank);
        for (i64 row_index = begin; row_index < end; row_index++)
            reconstruct_row(op, &local_right, &right, row_index, first, last, rank);
    }
}

static double column_product(const low_rank *op, i32 a, i32 b) {
    double sums[4] = {0};
    for (i64 i = 0; i < op->rows; i++) sums[i % 4] += (double)op->left[i * op->rank + a] * op->left[i * op->rank + b];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Gram-Schmidt in double precision. A column that is a linear combination of others but for a millionth becomes 0. */
static void orthonormalize_column(const low_rank *op, i32 k) {
    double before = column_product(op, k, k);
    for (i32 j = 0; j < k; j++) {
        double product = column_product(op, j, k);
        for (i64 i = 0; i < op->rows; i++) {
            float *row_index = op->left + i * op->rank;
            row_index[k] = (float)(row_index[k] - product * row_index[j]);
        }
    }
    double after = column_product(op, k, k),
           scale = after <= 1e-12 * before ? 0 : 1 / __builtin_elementwise_sqrt(after);
    for (i64 i = 0; i < op->rows; i++) op->left[i * op->rank + k] = (float)(op->left[i * op->rank + k] * scale);
}

#define RUN_BY_RANK(name, tiles) \
    static void run_lowrank_##name(worker *w, const void *p) { \
        const low_rank *op = p; \
        for (i64 tile; (tile = next_tile(w)) < (tiles);) { \
            if (op->rank == 1) name##_tile(op, tile, 1); \
            else if (op->rank == 2) name##_tile(op, tile, 2); \
            else if (op->rank == 4) name##_tile(op, tile, 4); \
            else if (op->rank == 8) name##_tile(op, tile, 8); \
            else name##_tile(op, tile, MAX_RANK); \
        } \
    } \
    static i64 workspace_lowrank_##name(i32 threads, const void *p) { \
        (void)threads, (void)p; \
        return 0; \
    }

RUN_BY_RANK(sketch, CEIL_DIV(op->rows, LOWRANK_TILE_ROWS))
RUN_BY_RANK(project, CEIL_DIV(op->columns, LOWRANK_TILE_COLUMNS))
RUN_BY_RANK(reconstruct, CEIL_DIV(op->rows, LOWRANK_TILE_ROWS))

static void run_lowrank_orthonormalize(worker *w, const void *p) {
    const low_rank *op = p;
    if (next_tile(w) == 0)
        for (i32 k = 0; k < op->rank; k++) orthonormalize_column(op, k);
}

static i64 workspace_lowrank_orthonormalize(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
