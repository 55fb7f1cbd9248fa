/* Dropout without a stored mask: the same hash as in the core's dropout.c, which documents it. */

static inline uint mix(uint x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* The factor of element i. NaN times 0 stays NaN. */
static inline float factor(uint i, global const uint *seed, uint salt, uint threshold, float scale) {
    uint key = mix(seed[0] + 0x9E3779B9u * salt) ^ mix(seed[1] + salt); /* the low 32 bits come first */
    return mix(i ^ key) >= threshold ? scale : 0;
}

kernel void dropout_forward(INPUT(X, x), global Y *y_buffer, long y_at, global const uint *seed, long seed_at, int rows,
                            int channels, int ld_y, uint salt, uint threshold, float scale) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_INPUT(X, x);
    float f = factor((uint)row * channels + c, seed + seed_at, salt, threshold, scale);
    STORE(Y, y_buffer + y_at, row * ld_y + c, LOAD_INPUT(X, x, row, c) * f);
}

kernel void dropout_backward(global const float *dy_buffer, long dy_at, GRADIENT(M, dx), global const uint *seed,
                             long seed_at, int rows, int channels, int ld_dy, uint salt, uint threshold, float scale) {
    int c = get_global_id(0), row = get_global_id(1);
    if (c >= channels || row >= rows) return;
    OPEN_GRADIENT(M, dx);
    float g =
        dy_buffer[dy_at + row * ld_dy + c] * factor((uint)row * channels + c, seed + seed_at, salt, threshold, scale);
    STORE_GRADIENT(M, dx, g, row, c);
}
