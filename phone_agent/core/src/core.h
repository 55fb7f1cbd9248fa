/* The core's face: what Python hands over, and what the kernels agree on. No libc anywhere.
 *
 * Activations are rows of channels, one row a pixel (NHWC); `ld` numbers lie between two rows, so a tensor may be a
 * slice of the channels of a wider one (that is how concatenation costs nothing). Weights are (kernel h, kernel w,
 * channels in / groups, channels out), gradients alike.
 *
 * A program is an array of steps. All threads run every step together: they share its work through `take`, and
 * `meet` between phases. phone_agent/core/ops.py mirrors every struct below; a test compares sizes and offsets.
 */
#pragma once

typedef signed int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

enum { CORE_ABI = 5, MAX_THREADS = 64 };

enum act { ACT_NONE, ACT_RELU, ACT_RELU6 };

/* How numbers lie in memory. Activations are FP32 or FP16, as a `number` beside them says; all arithmetic, gradients, and
 * whatever else has no such word are fp32. On the wire they may be any of these: wire.c says how. */
enum number { FP32, FP16, BF16, INT8 };

/* A tensor as its readers see it: act(scale[c] * data + shift[c]); scale is null where there is nothing to apply.
 * So a batch normalisation and its ReLU are done where the next layer loads, and their result is never stored. */
typedef struct {
    const void *data;
    const float *scale, *shift;
    i32 ld, act, number, unused;
} source;

/* One batch normalisation. `sums` is scratch for its reductions: [threads][2][channels]. */
typedef struct {
    const float *gamma, *beta;
    float *running_mean, *running_var;
    float *mean, *inv_std; /* of this batch, kept for backward */
    float *scale, *shift;  /* gamma * inv_std, beta - mean * scale: what a `source` applies */
    float *dgamma, *dbeta;
    double *sums;
    float epsilon, momentum; /* running = (1 - momentum) running + momentum batch; variance unbiased, as PyTorch's */
    i32 channels, accumulate; /* accumulate: add to dgamma, dbeta */
} norm;

/* Where a gradient goes. The sum (over what is there already, if `accumulate`) is then multiplied with the derivative
 * of the activation whose output this is the gradient of, where `act` is set: read off `y`, the stored output; or,
 * where `norm` is set, off y = act(scale * z + shift), and then the sums backward needs (of g and g * (z - mean), by
 * channel) are gathered in norm->sums as well. The planner sets these only on the last contribution. */
typedef struct {
    float *data;
    const void *y; /* stored output, or z where norm is set */
    const norm *norm;
    i32 ld, ld_y, act, accumulate, number, unused; /* number: of y */
} sink;

typedef struct {
    i32 batch, in_h, in_w, in_c, out_h, out_w, out_c;
    i32 kernel_h, kernel_w, stride, pad_h, pad_w, dilation, groups;
} geometry;

enum algorithm { DIRECT, WINOGRAD2, WINOGRAD4 };

enum kind {
    CONV_FORWARD,
    CONV_BACKWARD_DATA,
    CONV_BACKWARD_WEIGHTS,
    DEPTHWISE_FORWARD,
    DEPTHWISE_BACKWARD_DATA,
    DEPTHWISE_BACKWARD_WEIGHTS,
    POOL_FORWARD,
    POOL_BACKWARD,
    NORM_FORWARD,
    NORM_FOLD,
    NORM_BACKWARD,
    JOIN_FORWARD,
    JOIN_BACKWARD,
    LRN_FORWARD,
    LRN_BACKWARD,
    DROPOUT_FORWARD,
    DROPOUT_BACKWARD,
    SOFTMAX_LOSS,
    UPDATE,
    ENCODE,
    DECODE,
    LOWRANK_SKETCH,
    LOWRANK_ORTHONORMALISE,
    LOWRANK_PROJECT,
    LOWRANK_RESTORE,
    AUGMENT,
    FMA_PEAK,
    DGEMM,
    ELIMINATE,
    KINDS
};

/* Convolution with any geometry; fully connected is 1x1 on a 1x1 image. DEPTHWISE_* takes the same structs with
 * groups == in_c == out_c. y = act(conv(x) + bias), bias may be null. With `norm`: bias null, act none, and the
 * step ends with the batch's mean, inv_std, scale, shift and running statistics in *norm. */
typedef struct {
    geometry g;
    source x;
    const float *weights, *bias;
    void *y;
    norm *norm;
    i32 ld_y, act, algorithm, number;
} conv_forward;

typedef struct {
    geometry g;
    const float *dy, *weights;
    sink dx;
    i32 ld_dy, algorithm;
} conv_backward_data;

typedef struct {
    geometry g;
    source x;
    const float *dy;
    float *dweights, *dbias; /* dbias may be null */
    i32 ld_dy, algorithm, accumulate, unused;
} conv_backward_weights;

enum pooling { POOL_MAX, POOL_AVERAGE };

/* in_c == out_c, kernel_h * kernel_w <= 255 for max. `winner`: for max, which tap of the window, kept for backward;
 * rows of out_c bytes. Average: over the whole window where count_padding, else over the pixels inside the image. A window
 * may hang over the far edge (ceil mode). */
typedef struct {
    geometry g;
    source x;
    void *y;
    u8 *winner;
    i32 ld_y, pooling, count_padding, number;
} pool_forward;

typedef struct {
    geometry g;
    const float *dy;
    const u8 *winner;
    sink dx;
    i32 ld_dy, pooling, count_padding, unused;
} pool_backward;

/* Statistics of z where no convolution made them. Ends like conv_forward with norm. */
typedef struct {
    norm *norm;
    const void *z;
    i64 rows;
    i32 ld_z, number;
} norm_forward;

/* scale and shift from the running statistics: for evaluation. */
typedef struct {
    norm *norm;
} norm_fold;

/* dz from dy. y = act(scale * z + shift), and where `joined` is set, joined = join_act(y + something): then dy is the
 * gradient of `joined`, its masked value g is also written back to dy (the other branch needs it) unless keep_dy.
 * `reduced`: a sink has masked dy and filled norm->sums already. dz may be dy. `number`: of z and joined. */
typedef struct {
    norm *norm;
    const void *z, *joined;
    float *dy, *dz;
    i64 rows;
    i32 ld_z, ld_joined, ld_dy, ld_dz, act, join_act, reduced, keep_dy, number, unused;
} norm_backward;

/* y = act(a + b); b.data may be null: then this stores a source as its readers see it. */
typedef struct {
    source a, b;
    void *y;
    i64 rows;
    i32 channels, ld_y, act, number;
} join_forward;

/* target (+)= dy * act'(y): y null where act is none. `number`: of y. */
typedef struct {
    const float *dy;
    const void *y;
    float *target;
    i64 rows;
    i32 channels, ld_dy, ld_y, ld_target, act, accumulate, number, unused;
} join_backward;

/* y = x * (k + alpha / size * sum of x^2 over `size` channels around)^-beta; x as seen through the source. */
typedef struct {
    source x;
    void *y;
    i64 rows;
    i32 channels, ld_y, size, number;
    float alpha, beta, k, unused;
} lrn_forward;

typedef struct {
    source x;
    const float *dy;
    sink dx;
    i64 rows;
    i32 channels, ld_dy, size, unused;
    float alpha, beta, k, unused2;
} lrn_backward;

/* Element i (counted without gaps: row * channels + channel) is kept where hash(i, *draw, salt) >= rate * 2^32, and divided by
 * 1 - rate: see dropout.c and phone_agent/nn/dropout.py, which agree bit for bit. */
typedef struct {
    source x;
    void *y;
    const u64 *draw;
    i64 rows;
    i32 channels, ld_y;
    float rate;
    u32 salt;
    i32 number, unused;
} dropout_forward;

typedef struct {
    const float *dy;
    sink dx;
    const u64 *draw;
    i64 rows;
    i32 channels, ld_dy;
    float rate;
    u32 salt;
} dropout_backward;

/* Mean cross-entropy of softmax(scores) in *loss; dscores = *weight * its gradient. With `smoothing` the truth is that part
 * all classes alike, and the rest the label. */
typedef struct {
    const float *scores;
    const i32 *labels;
    const float *weight;
    float *dscores;
    double *loss;
    i32 batch, classes, ld_scores, ld_dscores;
    float smoothing, unused;
} softmax_loss;

enum method { METHOD_SGD, METHOD_NESTEROV, METHOD_LARS, METHOD_LAMB };

/* The gains are 1 - momentum, the corrections 1 / (1 - momentum^step): from double, where they keep their bits. */
typedef struct {
    float rate, trust, epsilon;
    float momentum, gain, correction;
    float second_momentum, second_gain, second_correction;
} rules;

/* Part of the packed buffers. `adapted`: its steps are scaled by norms over all of it. */
typedef struct {
    i64 start, count;
    float decay;
    i32 adapted;
} segment;

/* With d = g + decay w:
 * SGD: v = momentum v + d; w -= rate v. NESTEROV: likewise v; w -= rate (d + momentum v).
 * LARS: v = momentum v + rate ratio d; w -= v; ratio = trust |w| / (|g| + decay |w|).
 * LAMB: m = momentum m + gain g; v = second_momentum v + second_gain g^2; w -= rate ratio r, where
 *       r = correction m / (sqrt(second_correction v) + epsilon) + decay w; ratio = |w| / |r|.
 * The ratio is 1 where a segment is not adapted, or a norm is 0. `second` is LAMB's v, null elsewhere. */
typedef struct {
    float *values, *momenta, *second;
    const float *gradients;
    const rules *rules;
    const segment *segments;
    i32 count, method;
} update;

/* to = values + what `arrived` says + residual, which keeps what the format could not hold; both may be null. `settle`: values become
 * what whoever decodes `to` will have. */
typedef struct {
    float *values, *residual;
    const void *arrived;
    void *to;
    i64 count;
    i32 number, settle;
} encode;

/* values = what `from` says, or values += that. */
typedef struct {
    const void *from;
    float *values;
    i64 count;
    i32 number, accumulate;
} decode;

enum { MOST_RANK = 16 };

/* A matrix and its thin factors, rank 1, 2, 4, 8 or 16; `left` is (rows, rank), `right` and `own` (rank, columns). In this order:
 * SKETCH: matrix += residual; left = matrix x right^T.
 * ORTHONORMALISE: the columns of `left`; those that say nothing new become 0.
 * PROJECT: right = left^T x matrix.
 * RESTORE: residual = matrix - left x own; matrix = left x right. */
typedef struct {
    float *matrix, *residual, *left, *right;
    const float *own;
    i64 rows;
    i32 columns, rank;
} low_rank;

/* What of an image becomes the result: a window, as it is where it has the result's size (what lies outside the image is
 * zero), else resized (it must then lie inside). */
typedef struct {
    i32 top, left, height, width, flip, unused;
} image_view;

/* out = (value - mean[c]) * inv_std[c], of the views of some images; value = image / 255, or where `colours` is set
 * (channels is 3 then) colours[c][0..2] . image / 255 + colours[c][3], with 3 x 4 of them an image. */
typedef struct {
    const u8 *images;
    const image_view *views;
    const float *colours, *mean, *inv_std;
    float *out;
    i32 batch, in_h, in_w, out_h, out_w, channels;
} augment;

/* `count` rounds of independent fused multiply-adds in registers, on every thread; *flops says how many per thread. In single
 * precision, or in double. */
typedef struct {
    double *flops;
    i64 count;
    i32 in_double, unused;
} fma_peak;

/* C (+)= alpha A^T B in double precision: A is (depth, rows), B (depth, columns), C (rows, columns); ld doubles lie between
 * two rows. `accumulate`: add to what C holds. */
typedef struct {
    const double *a, *b;
    double *c;
    double alpha;
    i64 rows, columns, depth, lda, ldb, ldc;
    i32 accumulate, unused;
} dgemm;

/* A column of a LINPACK panel, `rows` doubles: divided by the pivot, then taken off each of those `beside` it (ld doubles lie between two)
 * times that one's factor. `largest`: the row of the largest size of the first of those, afterwards; not written where there is none. */
typedef struct {
    double *column;
    const double *factors;
    i64 *largest;
    double pivot;
    i64 rows, ld;
    i32 beside, unused;
} eliminate;

typedef struct {
    i32 kind, unused;
    void *op;
} step;

/* What happens to a piece that comes from the left in a ring. comm/schedule.py tells who sends what when; rings.c does it. */
enum errand { ERRAND_ADD, ERRAND_FINISH, ERRAND_TAKE };

/* A piece on its way: `count` numbers of the buffer, `bytes` on the wire. `kept`: where what a finished one was sent as is kept
 * for a ring that gathers, -1: nowhere. Of those that a ring begins with, errand and forward mean nothing. */
typedef struct {
    i64 start, count, bytes;
    i32 errand, forward, kept, unused;
} hop;

/* A message that arrives, leaves, or waits to. `slot`: the scratch it lies in, null: it lies in the buffer itself. */
typedef struct {
    void *request, *data, *slot;
    i64 bytes;
    i32 kept, unused;
} letter;

enum { RINGS_AHEAD = 8 }; /* receives waiting, and sends under way: what nobody waits for MPI keeps aside, and copies once more */

/* `arriving` has RINGS_AHEAD letters, `leaving` one for each piece this rank sends. `gathers`: it begins with what is finished. `room`: slots
 * that it may hold at once; more than any rank has pieces to begin with, or all might wait for each other. Then how far it is. */
typedef struct {
    const hop *first, *hops;
    letter *arriving, *leaving;
    i64 first_count, hop_count;
    i32 left_rank, right_rank, tag, gathers, room, unused;
    i64 ready, sent, gone, posted, taken, handled, slots, sent_bytes;
} ring;

/* Rings that go on at the same time, once two other stages are over; -1: none. */
typedef struct {
    i32 first, count, after, after_too, over, unused;
} stage;

enum doing { DOING_SEND, DOING_RECEIVE, DOING_REDUCE };

/* What took how long, in nanoseconds of the monotonic clock. Sending and receiving: waiting for it. */
typedef struct {
    i64 started, ended;
    i32 doing, unused;
} span;

/* One allreduce. `pool` is of one thread. `send`, `receive` and `test` are MPI_Isend, MPI_Irecv and MPI_Test, or what looks like them;
 * `datatype` is its byte. Naps in nanoseconds: who waits begins with the first and doubles it. `spans` may be null. */
typedef struct {
    ring *rings;
    stage *stages;
    float *buffer, *residual;
    void *pool, *slots, **free, **kept;
    span *spans;
    const void *send, *receive, *test;
    void *datatype, *comm;
    i64 slot_bytes, slot_count, free_count, first_nap, longest_nap, nap, napped, quiet_since;
    i32 ring_count, stage_count, number, span_room, span_count, error;
} allreduce;

enum outcome { RINGS_DONE, RINGS_AGAIN, RINGS_FAILED };

/* Exported. A pool is CORE_POOL_BYTES of zeroed, 64-byte aligned memory that Python owns. */
typedef struct pool pool;
enum { CORE_POOL_BYTES = 64 * 1024 };

#pragma GCC visibility push(default)
i32 core_abi(void);
i32 core_sizeof(i32 kind);
i32 core_isa_count(void);
const char *core_isa_name(i32 isa);  /* best first */
i32 core_isa_runs_here(i32 isa);
i32 core_lanes(i32 isa); /* floats in a vector */
/* Bytes of workspace this step needs when `threads` run it. */
i64 core_workspace(i32 isa, i32 threads, i32 kind, const void *op);
void core_open(pool *p, i32 isa, i32 threads, void *workspace);
void core_work(pool *p, i32 index); /* a worker thread's whole life: indices 1 .. threads - 1 */
void core_close(pool *p);
/* nanoseconds: null, or one i64 a step. */
void core_run(pool *p, const step *program, i32 count, i64 *nanoseconds);
/* Everything as before the first piece. */
void core_rings_begin(allreduce *all);
/* An `outcome`. AGAIN: nothing is wrong, but the caller may want to look at its signals, and at `spans`, which it may empty.
 * FAILED: `error` is what MPI said. */
i32 core_rings(allreduce *all);
#pragma GCC visibility pop
