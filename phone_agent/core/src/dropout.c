/* Dropout without a stored mask: the backward pass computes the same mask again.
 *
 * Whether an element is kept depends on (seed, salt) and on its position only. In 32-bit arithmetic that wraps
 * around:
 *     mix(x):    x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16
 *     key        = mix(low 32 bits of seed + 0x9E3779B9 * salt) ^ mix(high 32 bits of seed + salt)
 *     threshold  = rate (a float) * 2^32, rounded down, at most 2^32 - 1
 *     element i  is kept if mix(low 32 bits of i ^ key) >= threshold
 * phone_agent/backends/reference_layers.py implements the same in numpy, bit for bit. The seed differs between steps,
 * the salt between layers.
 *
 * A dropped element is multiplied by 0: NaN stays NaN. */

typedef struct {
    u32 key, threshold;
    float scale; /* factor of a kept element */
} dropout_mask;

static u32 mix(u32 x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static dropout_mask dropout_mask_of(u64 seed, u32 salt, float rate) {
    u32 key = mix((u32)seed + 0x9E3779B9u * salt) ^ mix((u32)(seed >> 32) + salt);
    double threshold = (double)rate * 4294967296.0;
    return (dropout_mask){key, threshold < 4294967295.0 ? (u32)threshold : 0xFFFFFFFFu, 1 / (1 - rate)};
}

INLINE uvec lane_indices(void) {
    uvec lane;
    UNROLL for (u32 i = 0; i < LANES; i++) lane[i] = i;
    return lane;
}

/* The factors of elements i .. i + LANES - 1. */
INLINE vec mask_factors(dropout_mask l, i64 i) {
    uvec x = ((u32)i + lane_indices()) ^ l.key;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x >= l.threshold ? (vec)l.scale : (vec)0;
}

/* Tiles of rows x channels: a fully connected layer has few rows, but long ones. */
enum { DROPOUT_TILE_ROWS = 16, DROPOUT_TILE_CHANNELS = 256 };

typedef struct {
    i64 row;
    i32 rows, c, channels;
} dropout_tile;

INLINE i64 dropout_tile_count(i64 rows, i32 channels) {
    return CEIL_DIV(rows, DROPOUT_TILE_ROWS) * CEIL_DIV(channels, DROPOUT_TILE_CHANNELS);
}

static dropout_tile dropout_tile_at(i64 tile, i64 rows, i32 channels) {
    i64 across = CEIL_DIV(channels, DROPOUT_TILE_CHANNELS), row = tile / across * DROPOUT_TILE_ROWS;
    i32 c = (i32)(tile % across) * DROPOUT_TILE_CHANNELS;
    return (dropout_tile){row, (i32)MIN(DROPOUT_TILE_ROWS, rows - row), c, MIN(DROPOUT_TILE_CHANNELS, channels - c)};
}

/* `dtype` is a constant where this is called, so the loop does not branch on it. */
INLINE void dropout_row(const float *x, dropout_mask l, i64 i, i32 channels, void *y, i32 dtype) {
    i32 c = 0;
    for (; c + LANES <= channels; c += LANES)
        store_from_fp32(element_at(y, c, dtype), load(x + c) * mask_factors(l, i + c), LANES, dtype);
    if (c < channels)
        store_from_fp32(element_at(y, c, dtype), load(x + c) * mask_factors(l, i + c), channels - c, dtype);
}

static void run_dropout_forward(worker *w, const void *p) {
    const dropout_forward *op = p;
    dropout_mask l = dropout_mask_of(*op->seed, op->salt, op->rate);
    float local[DROPOUT_TILE_CHANNELS + LANES];
    for (i64 tile; (tile = next_tile(w)) < dropout_tile_count(op->rows, op->channels);) {
        dropout_tile at = dropout_tile_at(tile, op->rows, op->channels);
        for (i64 row = at.row; row < at.row + at.rows; row++) {
            load_affine_row(&op->x, row, at.c, at.channels, local);
            void *y = element_at(op->y, row * op->ld_y + at.c, op->dtype);
            i64 i = row * op->channels + at.c;
            if (op->dtype == FP16) dropout_row(local, l, i, at.channels, y, FP16);
            else dropout_row(local, l, i, at.channels, y, FP32);
        }
    }
}

static i64 workspace_dropout_forward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}

static void run_dropout_backward(worker *w, const void *p) {
    const dropout_backward *op = p;
    dropout_mask l = dropout_mask_of(*op->seed, op->salt, op->rate);
    float local[DROPOUT_TILE_ROWS][DROPOUT_TILE_CHANNELS + LANES];
    i64 start, end, rows[DROPOUT_TILE_ROWS];
    split_range(dropout_tile_count(op->rows, op->channels), w->index, w->threads, &start,
                &end); /* static scheduling: the gradient may include a reduction */
    if (op->dx.norm) batch_norm_clear_sums(op->dx.norm, w);
    for (i64 tile = start; tile < end; tile++) {
        dropout_tile at = dropout_tile_at(tile, op->rows, op->channels);
        for (i32 r = 0; r < at.rows; r++) {
            rows[r] = at.row + r;
            const float *dy = op->dy + rows[r] * op->ld_dy + at.c;
            i64 i = rows[r] * op->channels + at.c;
            i32 c = 0;
            for (; c + LANES <= at.channels; c += LANES) store(local[r] + c, load(dy + c) * mask_factors(l, i + c));
            if (c < at.channels) store(local[r] + c, load_partial(dy + c, at.channels - c) * mask_factors(l, i + c));
        }
        store_gradient_tile(&op->dx, w, local[0], DROPOUT_TILE_CHANNELS + LANES, rows, at.rows, at.c, at.channels);
    }
}

static i64 workspace_dropout_backward(i32 threads, const void *p) {
    (void)threads, (void)p;
    return 0;
}
