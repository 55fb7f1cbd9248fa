/* The optimizer update over the packed buffers. Each tile belongs to one segment. The norms of an adaptive segment
 * are summed by tiles of that segment, so neither the number of threads nor other segments change a bit of the
 * result. */
#include "vmath.h"

enum { UPDATE_TILE_FLOATS = 8 * 1024 }; /* floats per tile */

/* Squared norms of the weights, and of what they are compared with: the gradients (LARS) or the update itself
 * (LAMB). */
typedef struct {
    double weights, steps;
} squared_norms;

/* A thread's position in the tiles of all segments. Tile indices only increase. */
typedef struct {
    const segment *at, *end;
    i64 first; /* index of the segment's first tile */
    float ratio;
} segment_cursor;

INLINE i64 tiles_of(const segment *s) { return CEIL_DIV(s->count, UPDATE_TILE_FLOATS); }

static float trust_ratio(const optimizer_update *op, const segment_cursor *at, const squared_norms *norms) {
    double weights = 0, steps = 0;
    for (i64 tile = at->first; tile < at->first + tiles_of(at->at); tile++) {
        weights += norms[tile].weights;
        steps += norms[tile].steps;
    }
    weights = __builtin_elementwise_sqrt(weights);
    steps = __builtin_elementwise_sqrt(steps);
    if (weights == 0 || steps == 0) return 1;
    if (op->optimizer == OPTIMIZER_LAMB) return (float)(weights / steps);
    return (float)(op->params->trust_coefficient * weights / (steps + at->at->weight_decay * weights));
}

/* Move to the segment that contains this tile and return it, or null. If norms are given, compute its trust ratio. */
static const segment *seek_segment(segment_cursor *at, i64 tile, const optimizer_update *op,
                                   const squared_norms *norms) {
    i32 updated = at->at == 0;
    if (updated) *at = (segment_cursor){op->segments, op->segments + op->count, 0, 1};
    for (; at->at < at->end && tile >= at->first + tiles_of(at->at); at->at++, updated = 1)
        at->first += tiles_of(at->at);
    if (at->at == at->end) return 0;
    if (updated) at->ratio = norms && at->at->adaptive ? trust_ratio(op, at, norms) : 1;
    return at->at;
}

typedef struct {
    float *weights, *momenta, *second_moments;
    const float *gradients;
    i64 count;
} update_tile;

INLINE update_tile update_tile_of(const optimizer_update *op, const segment_cursor *at, i64 tile) {
    i64 done = (tile - at->first) * UPDATE_TILE_FLOATS, i = at->at->start + done;
    return (update_tile){op->weights + i, op->momenta + i, op->second_moments ? op->second_moments + i : 0,
                         op->gradients + i, MIN(UPDATE_TILE_FLOATS, at->at->count - done)};
}

INLINE vec gradient_with_decay(const update_tile *s, i64 i, i32 lanes, vec w, float weight_decay) {
    return load_lanes(s->gradients + i, lanes) + weight_decay * w;
}

INLINE void momentum_step(const update_tile *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay,
                          float ratio, i32 optimizer) {
    vec w = load_lanes(s->weights + i, lanes), g = gradient_with_decay(s, i, lanes, w, weight_decay);
    if (optimizer == OPTIMIZER_LARS) g = (r->lr * ratio) * g;
    vec v = r->momentum * load_lanes(s->momenta + i, lanes) + g;
    store_lanes(s->momenta + i, v, lanes);
    vec updated = optimizer == OPTIMIZER_SGD    ? w - r->lr * v
                  : optimizer == OPTIMIZER_LARS ? w - v
                                                : w - r->lr * (g + r->momentum * v);
    store_lanes(s->weights + i, updated, lanes);
}

INLINE vec lamb_direction(vec m, vec v, vec w, const optimizer_params *r, float weight_decay) {
    return r->bias_correction * m / (vsqrt(r->bias_correction2 * v) + r->epsilon) + weight_decay * w;
}

INLINE void lamb_step(const update_tile *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay,
                      float ratio) {
    vec w = load_lanes(s->weights + i, lanes);
    vec direction =
        lamb_direction(load_lanes(s->momenta + i, lanes), load_lanes(s->second_moments + i, lanes), w, r, weight_decay);
    store_lanes(s->weights + i, w - (r->lr * ratio) * direction, lanes);
}

/* LAMB compares with the update, which needs both new moments. So this updates them. */
INLINE vec lamb_moments(const update_tile *s, i64 i, i32 lanes, vec w, const optimizer_params *r, float weight_decay) {
    vec g = load_lanes(s->gradients + i, lanes);
    vec m = r->momentum * load_lanes(s->momenta + i, lanes) + r->one_minus_momentum * g;
    vec v = r->beta2 * load_lanes(s->second_moments + i, lanes) + r->one_minus_beta2 * (g * g);
    store_lanes(s->momenta + i, m, lanes);
    store_lanes(s->second_moments + i, v, lanes);
    return lamb_direction(m, v, w, r, weight_decay);
}

INLINE void add_squares(const update_tile *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay,
                        i32 optimizer, dvec *of_weights, dvec *of_steps) {
    vec w = load_lanes(s->weights + i, lanes);
    vec step = optimizer == OPTIMIZER_LAMB ? lamb_moments(s, i, lanes, w, r, weight_decay)
                                           : load_lanes(s->gradients + i, lanes);
    dvec wide = to_double(w), step_wide = to_double(step);
    *of_weights += wide * wide;
    *of_steps += step_wide * step_wide;
}

INLINE double sum_lanes(dvec v) {
    double sum = 0;
    UNROLL for (i32 i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

INLINE squared_norms tile_norms(const update_tile *s, const optimizer_params *r, float weight_decay, i32 optimizer) {
    dvec of_weights = 0, of_steps = 0;
    i64 i = 0;
    for (; i + LANES <= s->count; i += LANES)
        add_squares(s, i, LANES, r, weight_decay, optimizer, &of_weights, &of_steps);
    if (i < s->count) add_squares(s, i, (i32)(s->count - i), r, weight_decay, optimizer, &of_weights, &of_steps);
    return (squared_norms){sum_lanes(of_weights), sum_lanes(of_steps)};
}

INLINE void step_lanes(const update_tile *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay,
                       float ratio, i32 optimizer) {
    if (optimizer == OPTIMIZER_LAMB) lamb_step(s, i, lanes, r, weight_decay, ratio);
    else momentum_step(s, i, lanes, r, weight_decay, ratio, optimizer);
}

INLINE void step_tile(const update_tile *s, const optimizer_params *r, float weight_decay, float ratio, i32 optimizer) {
    i64 i = 0;
    for (; i + 2 * LANES <= s->count; i += 2 * LANES) {
        step_lanes(s, i, LANES, r, weight_decay, ratio, optimizer);
        step_lanes(s, i + LANES, LANES, r, weight_decay, ratio, optimizer);
    }
    for (; i < s->count; i += LANES) step_lanes(s, i, (i32)MIN(LANES, s->count - i), r, weight_decay, ratio, optimizer);
}

INLINE void run_optimizer(worker *w, const optimizer_update *op, i32 optimizer) {
    const optimizer_params r = *op->params;
    squared_norms *norms =
        optimizer == OPTIMIZER_LARS || optimizer == OPTIMIZER_LAMB ? (squared_norms *)w->workspace : 0;
    const segment *s;
    if (norms) {
        segment_cursor at = {0};
        for (i64 tile; tile = next_tile(w), (s = seek_segment(&at, tile, op, 0));) {
            if (optimizer == OPTIMIZER_LARS && !s->adaptive) continue;
            update_tile of = update_tile_of(op, &at, tile);
            norms[tile] = tile_norms(&of, &r, s->weight_decay, optimizer);
        }
        barrier(w);
    }
    segment_cursor at = {0};
    for (i64 tile; tile = next_tile(w), (s = seek_segment(&at, tile, op, norms));) {
        update_tile of = update_tile_of(op, &at, tile);
        step_tile(&of, &r, s->weight_decay, at.ratio, optimizer);
    }
}

static void run_optimizer_update(worker *w, const void *p) {
    const optimizer_update *op = p;
    switch (op->optimizer) {
    case OPTIMIZER_SGD: run_optimizer(w, op, OPTIMIZER_SGD); break;
    case OPTIMIZER_NESTEROV: run_optimizer(w, op, OPTIMIZER_NESTEROV); break;
    case OPTIMIZER_LARS: run_optimizer(w, op, OPTIMIZER_LARS); break;
    case OPTIMIZER_LAMB: run_optimizer(w, op, OPTIMIZER_LAMB); break;
    }
}

static i64 workspace_optimizer_update(i32 threads, const void *p) {
    (void)threads;
    const optimizer_update *op = p;
    if (op->optimizer != OPTIMIZER_LARS && op->optimizer != OPTIMIZER_LAMB) return 0;
    i64 tiles = 0;
    for (i32 i = 0; i < op->count; i++) tiles += tiles_of(op->segments + i);
    return tiles * (i64)sizeof(squared_norms);
}
