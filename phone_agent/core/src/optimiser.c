/* The optimiser's step over the packed buffers. What decides how a tile is computed lies in its segment; where that is
 * scaled by norms, they are added up by tiles of the segment, so neither threads nor neighbours change a bit. */
#include "mathematics.h"

enum { UPDATE_FLOATS = 8 * 1024 }; /* in a tile */

/* Squares of the values, and of what they are compared with: the gradients (LARS), or the step itself (LAMB). */
typedef struct {
    double weights, steps;
} squares;

/* Where a thread is in the tiles of all segments: their numbers only grow. */
typedef struct {
    const segment *at, *end;
    i64 first; /* number of the segment's first tile */
    float ratio;
} walk;

INLINE i64 tiles_of(const segment *s) { return CEIL_DIV(s->count, UPDATE_FLOATS); }

static float trust_ratio(const optimizer_update *op, const walk *at, const squares *sums) {
    double weights = 0, steps = 0;
    for (i64 tile = at->first; tile < at->first + tiles_of(at->at); tile++) {
        weights += sums[tile].weights;
        steps += sums[tile].steps;
    }
    weights = __builtin_elementwise_sqrt(weights);
    steps = __builtin_elementwise_sqrt(steps);
    if (weights == 0 || steps == 0) return 1;
    if (op->optimizer == OPTIMIZER_LAMB) return (float)(weights / steps);
    return (float)(op->params->trust_coefficient * weights / (steps + at->at->weight_decay * weights));
}

/* The segment that this tile is in, or null; where sums are given, with its ratio. */
static const segment *reach(walk *at, i64 tile, const optimizer_update *op, const squares *sums) {
    i32 moved = at->at == 0;
    if (moved) *at = (walk){op->segments, op->segments + op->count, 0, 1};
    for (; at->at < at->end && tile >= at->first + tiles_of(at->at); at->at++, moved = 1) at->first += tiles_of(at->at);
    if (at->at == at->end) return 0;
    if (moved) at->ratio = sums && at->at->adaptive ? trust_ratio(op, at, sums) : 1;
    return at->at;
}

typedef struct {
    float *weights, *momenta, *second_moments;
    const float *gradients;
    i64 count;
} stretch;

INLINE stretch stretch_of(const optimizer_update *op, const walk *at, i64 tile) {
    i64 done = (tile - at->first) * UPDATE_FLOATS, i = at->at->start + done;
    return (stretch){op->weights + i, op->momenta + i, op->second_moments ? op->second_moments + i : 0, op->gradients + i,
                     MIN(UPDATE_FLOATS, at->at->count - done)};
}

INLINE vec decayed(const stretch *s, i64 i, i32 lanes, vec w, float weight_decay) {
    return load_lanes(s->gradients + i, lanes) + weight_decay * w;
}

INLINE void momentum_step(const stretch *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay, float ratio, i32 optimizer) {
    vec w = load_lanes(s->weights + i, lanes), g = decayed(s, i, lanes, w, weight_decay);
    if (optimizer == OPTIMIZER_LARS) g = (r->lr * ratio) * g;
    vec v = r->momentum * load_lanes(s->momenta + i, lanes) + g;
    store_lanes(s->momenta + i, v, lanes);
    vec moved = optimizer == OPTIMIZER_SGD ? w - r->lr * v : optimizer == OPTIMIZER_LARS ? w - v : w - r->lr * (g + r->momentum * v);
    store_lanes(s->weights + i, moved, lanes);
}

INLINE vec lamb_direction(vec m, vec v, vec w, const optimizer_params *r, float weight_decay) {
    return r->bias_correction * m / (square_root(r->bias_correction2 * v) + r->epsilon) + weight_decay * w;
}

INLINE void lamb_step(const stretch *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay, float ratio) {
    vec w = load_lanes(s->weights + i, lanes);
    vec direction = lamb_direction(load_lanes(s->momenta + i, lanes), load_lanes(s->second_moments + i, lanes), w, r, weight_decay);
    store_lanes(s->weights + i, w - (r->lr * ratio) * direction, lanes);
}

/* What LAMB compares with is known only once both moments are new: so they are, after this. */
INLINE vec lamb_moments(const stretch *s, i64 i, i32 lanes, vec w, const optimizer_params *r, float weight_decay) {
    vec g = load_lanes(s->gradients + i, lanes);
    vec m = r->momentum * load_lanes(s->momenta + i, lanes) + r->one_minus_momentum * g;
    vec v = r->beta2 * load_lanes(s->second_moments + i, lanes) + r->one_minus_beta2 * (g * g);
    store_lanes(s->momenta + i, m, lanes);
    store_lanes(s->second_moments + i, v, lanes);
    return lamb_direction(m, v, w, r, weight_decay);
}

INLINE void add_squares(const stretch *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay, i32 optimizer, dvec *of_values,
                        dvec *of_steps) {
    vec w = load_lanes(s->weights + i, lanes);
    vec step = optimizer == OPTIMIZER_LAMB ? lamb_moments(s, i, lanes, w, r, weight_decay) : load_lanes(s->gradients + i, lanes);
    dvec wide = in_double(w), step_wide = in_double(step);
    *of_values += wide * wide;
    *of_steps += step_wide * step_wide;
}

INLINE double over_lanes(dvec v) {
    double sum = 0;
    UNROLL for (i32 i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

INLINE squares measured(const stretch *s, const optimizer_params *r, float weight_decay, i32 optimizer) {
    dvec of_values = 0, of_steps = 0;
    i64 i = 0;
    for (; i + LANES <= s->count; i += LANES) add_squares(s, i, LANES, r, weight_decay, optimizer, &of_values, &of_steps);
    if (i < s->count) add_squares(s, i, (i32)(s->count - i), r, weight_decay, optimizer, &of_values, &of_steps);
    return (squares){over_lanes(of_values), over_lanes(of_steps)};
}

INLINE void stepped_lanes(const stretch *s, i64 i, i32 lanes, const optimizer_params *r, float weight_decay, float ratio, i32 optimizer) {
    if (optimizer == OPTIMIZER_LAMB) lamb_step(s, i, lanes, r, weight_decay, ratio);
    else momentum_step(s, i, lanes, r, weight_decay, ratio, optimizer);
}

INLINE void stepped(const stretch *s, const optimizer_params *r, float weight_decay, float ratio, i32 optimizer) {
    i64 i = 0;
    for (; i + 2 * LANES <= s->count; i += 2 * LANES) {
        stepped_lanes(s, i, LANES, r, weight_decay, ratio, optimizer);
        stepped_lanes(s, i + LANES, LANES, r, weight_decay, ratio, optimizer);
    }
    for (; i < s->count; i += LANES) stepped_lanes(s, i, (i32)MIN(LANES, s->count - i), r, weight_decay, ratio, optimizer);
}

INLINE void run_method(worker *w, const optimizer_update *op, i32 optimizer) {
    const optimizer_params r = *op->params;
    squares *sums = optimizer == OPTIMIZER_LARS || optimizer == OPTIMIZER_LAMB ? (squares *)w->workspace : 0;
    const segment *s;
    if (sums) {
        walk at = {0};
        for (i64 tile; tile = take(w), (s = reach(&at, tile, op, 0));) {
            if (optimizer == OPTIMIZER_LARS && !s->adaptive) continue;
            stretch of = stretch_of(op, &at, tile);
            sums[tile] = measured(&of, &r, s->weight_decay, optimizer);
        }
        meet(w);
    }
    walk at = {0};
    for (i64 tile; tile = take(w), (s = reach(&at, tile, op, sums));) {
        stretch of = stretch_of(op, &at, tile);
        stepped(&of, &r, s->weight_decay, at.ratio, optimizer);
    }
}

static void run_optimizer_update(worker *w, const void *p) {
    const optimizer_update *op = p;
    switch (op->optimizer) {
    case OPTIMIZER_SGD: run_method(w, op, OPTIMIZER_SGD); break;
    case OPTIMIZER_NESTEROV: run_method(w, op, OPTIMIZER_NESTEROV); break;
    case OPTIMIZER_LARS: run_method(w, op, OPTIMIZER_LARS); break;
    case OPTIMIZER_LAMB: run_method(w, op, OPTIMIZER_LAMB); break;
    }
}

static i64 workspace_optimizer_update(i32 threads, const void *p) {
    (void)threads;
    const optimizer_update *op = p;
    if (op->optimizer != OPTIMIZER_LARS && op->optimizer != OPTIMIZER_LAMB) return 0;
    i64 tiles = 0;
    for (i32 i = 0; i < op->count; i++) tiles += tiles_of(op->segments + i);
    return tiles * (i64)sizeof(squares);
}
