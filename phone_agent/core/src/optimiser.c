/* The optimiser's step over the packed buffers. What decides how a tile is computed lies in its segment; where that is
 * scaled by norms, they are added up by tiles of the segment, so neither threads nor neighbours change a bit. */
#include "mathematics.h"

enum { UPDATE_FLOATS = 8 * 1024 }; /* in a tile */

/* Squares of the values, and of what they are compared with: the gradients (LARS), or the step itself (LAMB). */
typedef struct {
    double values, steps;
} squares;

/* Where a thread is in the tiles of all segments: their numbers only grow. */
typedef struct {
    const segment *at, *end;
    i64 first; /* number of the segment's first tile */
    float ratio;
} walk;

INLINE i64 tiles_of(const segment *s) { return CEIL_DIV(s->count, UPDATE_FLOATS); }

static float trust_ratio(const update *op, const walk *at, const squares *sums) {
    double values = 0, steps = 0;
    for (i64 tile = at->first; tile < at->first + tiles_of(at->at); tile++) {
        values += sums[tile].values;
        steps += sums[tile].steps;
    }
    values = __builtin_elementwise_sqrt(values);
    steps = __builtin_elementwise_sqrt(steps);
    if (values == 0 || steps == 0) return 1;
    if (op->method == METHOD_LAMB) return (float)(values / steps);
    return (float)(op->rules->trust * values / (steps + at->at->decay * values));
}

/* The segment that this tile is in, or null; where sums are given, with its ratio. */
static const segment *reach(walk *at, i64 tile, const update *op, const squares *sums) {
    i32 moved = at->at == 0;
    if (moved) *at = (walk){op->segments, op->segments + op->count, 0, 1};
    for (; at->at < at->end && tile >= at->first + tiles_of(at->at); at->at++, moved = 1) at->first += tiles_of(at->at);
    if (at->at == at->end) return 0;
    if (moved) at->ratio = sums && at->at->adapted ? trust_ratio(op, at, sums) : 1;
    return at->at;
}

typedef struct {
    float *values, *momenta, *second;
    const float *gradients;
    i64 count;
} stretch;

INLINE stretch stretch_of(const update *op, const walk *at, i64 tile) {
    i64 done = (tile - at->first) * UPDATE_FLOATS, i = at->at->start + done;
    return (stretch){op->values + i, op->momenta + i, op->second ? op->second + i : 0, op->gradients + i,
                     MIN(UPDATE_FLOATS, at->at->count - done)};
}

INLINE vec decayed(const stretch *s, i64 i, i32 lanes, vec w, float decay) {
    return load_lanes(s->gradients + i, lanes) + decay * w;
}

INLINE void momentum_step(const stretch *s, i64 i, i32 lanes, const rules *r, float decay, float ratio, i32 method) {
    vec w = load_lanes(s->values + i, lanes), g = decayed(s, i, lanes, w, decay);
    if (method == METHOD_LARS) g = (r->rate * ratio) * g;
    vec v = r->momentum * load_lanes(s->momenta + i, lanes) + g;
    store_lanes(s->momenta + i, v, lanes);
    vec moved = method == METHOD_SGD ? w - r->rate * v : method == METHOD_LARS ? w - v : w - r->rate * (g + r->momentum * v);
    store_lanes(s->values + i, moved, lanes);
}

INLINE vec lamb_direction(vec m, vec v, vec w, const rules *r, float decay) {
    return r->correction * m / (square_root(r->second_correction * v) + r->epsilon) + decay * w;
}

INLINE void lamb_step(const stretch *s, i64 i, i32 lanes, const rules *r, float decay, float ratio) {
    vec w = load_lanes(s->values + i, lanes);
    vec direction = lamb_direction(load_lanes(s->momenta + i, lanes), load_lanes(s->second + i, lanes), w, r, decay);
    store_lanes(s->values + i, w - (r->rate * ratio) * direction, lanes);
}

/* What LAMB compares with is known only once both moments are new: so they are, after this. */
INLINE vec lamb_moments(const stretch *s, i64 i, i32 lanes, vec w, const rules *r, float decay) {
    vec g = load_lanes(s->gradients + i, lanes);
    vec m = r->momentum * load_lanes(s->momenta + i, lanes) + r->gain * g;
    vec v = r->second_momentum * load_lanes(s->second + i, lanes) + r->second_gain * (g * g);
    store_lanes(s->momenta + i, m, lanes);
    store_lanes(s->second + i, v, lanes);
    return lamb_direction(m, v, w, r, decay);
}

INLINE void add_squares(const stretch *s, i64 i, i32 lanes, const rules *r, float decay, i32 method, dvec *of_values,
                        dvec *of_steps) {
    vec w = load_lanes(s->values + i, lanes);
    vec step = method == METHOD_LAMB ? lamb_moments(s, i, lanes, w, r, decay) : load_lanes(s->gradients + i, lanes);
    dvec wide = in_double(w), step_wide = in_double(step);
    *of_values += wide * wide;
    *of_steps += step_wide * step_wide;
}

INLINE double over_lanes(dvec v) {
    double sum = 0;
    UNROLL for (i32 i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

INLINE squares measured(const stretch *s, const rules *r, float decay, i32 method) {
    dvec of_values = 0, of_steps = 0;
    i64 i = 0;
    for (; i + LANES <= s->count; i += LANES) add_squares(s, i, LANES, r, decay, method, &of_values, &of_steps);
    if (i < s->count) add_squares(s, i, (i32)(s->count - i), r, decay, method, &of_values, &of_steps);
    return (squares){over_lanes(of_values), over_lanes(of_steps)};
}

INLINE void stepped_lanes(const stretch *s, i64 i, i32 lanes, const rules *r, float decay, float ratio, i32 method) {
    if (method == METHOD_LAMB) lamb_step(s, i, lanes, r, decay, ratio);
    else momentum_step(s, i, lanes, r, decay, ratio, method);
}

INLINE void stepped(const stretch *s, const rules *r, float decay, float ratio, i32 method) {
    i64 i = 0;
    for (; i + 2 * LANES <= s->count; i += 2 * LANES) {
        stepped_lanes(s, i, LANES, r, decay, ratio, method);
        stepped_lanes(s, i + LANES, LANES, r, decay, ratio, method);
    }
    for (; i < s->count; i += LANES) stepped_lanes(s, i, (i32)MIN(LANES, s->count - i), r, decay, ratio, method);
}

INLINE void run_method(worker *w, const update *op, i32 method) {
    const rules r = *op->rules;
    squares *sums = method == METHOD_LARS || method == METHOD_LAMB ? (squares *)w->workspace : 0;
    const segment *s;
    if (sums) {
        walk at = {0};
        for (i64 tile; tile = take(w), (s = reach(&at, tile, op, 0));) {
            if (method == METHOD_LARS && !s->adapted) continue;
            stretch of = stretch_of(op, &at, tile);
            sums[tile] = measured(&of, &r, s->decay, method);
        }
        meet(w);
    }
    walk at = {0};
    for (i64 tile; tile = take(w), (s = reach(&at, tile, op, sums));) {
        stretch of = stretch_of(op, &at, tile);
        stepped(&of, &r, s->decay, at.ratio, method);
    }
}

static void run_update(worker *w, const void *p) {
    const update *op = p;
    switch (op->method) {
    case METHOD_SGD: run_method(w, op, METHOD_SGD); break;
    case METHOD_NESTEROV: run_method(w, op, METHOD_NESTEROV); break;
    case METHOD_LARS: run_method(w, op, METHOD_LARS); break;
    case METHOD_LAMB: run_method(w, op, METHOD_LAMB); break;
    }
}

static i64 workspace_update(i32 threads, const void *p) {
    (void)threads;
    const update *op = p;
    if (op->method != METHOD_LARS && op->method != METHOD_LAMB) return 0;
    i64 tiles = 0;
    for (i32 i = 0; i < op->count; i++) tiles += tiles_of(op->segments + i);
    return tiles * (i64)sizeof(squares);
}
