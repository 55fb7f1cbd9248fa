/* The interface of the core: the structs that Python fills in, and the functions that it calls. No libc anywhere.
 *
 * Activations are NHWC: one row of channels per pixel. Two rows are `ld` elements apart (the leading dimension), so a
 * tensor can be a slice of the channels of a wider one; that makes concatenation free. Weights are laid out as (kernel
 * height, kernel width, input channels / groups, output channels), and so are their gradients.
 *
 * A program is an array of steps. All threads run every step together: they share its work through next_tile() and
 * synchronize with barrier(). phone_agent/core/ops.py mirrors every struct below; a test compares sizes and offsets.
 */
#pragma once

typedef signed int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

enum { CORE_ABI = 6, MAX_THREADS = 64 };

enum act { ACT_NONE, ACT_RELU, ACT_RELU6 };

/* Element type in memory or on the wire. Activations are FP32 or FP16, as the `dtype` next to them says. Everything
 * without a dtype is fp32, and so is all arithmetic. wire.c describes the wire formats. */
enum dtype { FP32, FP16, BF16, INT8 };

/* An input tensor with the preceding layer fused into its load: the kernel sees act(scale[c] * data + shift[c]).
 * `scale` is null if there is nothing to apply. This is how a batch normalization and its ReLU are computed where the
 * next layer loads them; their result is never stored. */
typedef struct {
    const void *data;
    const float *scale, *shift;
    i32 ld, act, dtype, unused;
} fused_input;

/* One batch normalization. `sums` is scratch memory for its reductions: [threads][2][channels]. */
typedef struct {
    const float *gamma, *beta;
    float *running_mean, *running_var;
    float *mean, *inv_std; /* of this batch, saved for the backward pass */
    float *scale, *shift;  /* gamma * inv_std and beta - mean * scale: what a fused_input applies */
    float *dgamma, *dbeta;
    double *sums;
    float epsilon,
        momentum; /* running = (1 - momentum) * running + momentum * batch; unbiased variance, as in PyTorch */
    i32 channels, accumulate; /* accumulate: add to dgamma and dbeta */
} batch_norm;

/* The destination of a gradient, with the preceding layer's backward pass fused into the store. The gradient is added
 * to `data` if `accumulate` is set. If `act` is set, the result is multiplied by the derivative of that activation,
 * which is computed from its stored output `y`. If `norm` is set, y holds z, the input of the normalization, the
 * activation's output is act(scale * z + shift), and the two sums that batch_norm_backward needs (of g and of
 * g * (z - mean), per channel) are accumulated in norm->sums. The planner sets these on the last contribution only. */
typedef struct {
    float *data;
    const void *y; /* stored output of the activation, or z if norm is set */
    const batch_norm *norm;
    i32 ld, ld_y, act, accumulate, dtype, unused; /* dtype: of y */
} fused_gradient;

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
    POOLING_FORWARD,
    POOLING_BACKWARD,
    BATCH_NORM_FORWARD,
    BATCH_NORM_FOLD,
    BATCH_NORM_BACKWARD,
    ADD_FORWARD,
    ADD_BACKWARD,
    LRN_FORWARD,
    LRN_BACKWARD,
    DROPOUT_FORWARD,
    DROPOUT_BACKWARD,
    SOFTMAX_LOSS,
    OPTIMIZER_UPDATE,
    ENCODE,
    DECODE,
    LOWRANK_SKETCH,
    LOWRANK_ORTHONORMALIZE,
    LOWRANK_PROJECT,
    LOWRANK_RECONSTRUCT,
    AUGMENT,
    FMA_PEAK,
    DGEMM,
    ELIMINATE,
    KIND_COUNT
};

/* Convolution of any geometry. A fully connected layer is a 1x1 convolution of a 1x1 image. DEPTHWISE_* uses the same
 * structs with groups == in_c == out_c. y = act(conv(x) + bias); bias may be null. If `norm` is set, bias is null and
 * act is none, and the step leaves the batch's mean, inv_std, scale and shift and the running statistics in *norm. */
typedef struct {
    geometry g;
    fused_input x;
    const float *weights, *bias;
    void *y;
    batch_norm *norm;
    i32 ld_y, act, algorithm, dtype;
} conv_forward;

typedef struct {
    geometry g;
    const float *dy, *weights;
    fused_gradient dx;
    i32 ld_dy, algorithm;
} conv_backward_data;

typedef struct {
    geometry g;
    fused_input x;
    const float *dy;
    float *dweights, *dbias; /* dbias may be null */
    i32 ld_dy, algorithm, accumulate, unused;
} conv_backward_weights;

enum pooling { POOLING_MAX, POOLING_AVERAGE };

/* in_c == out_c; kernel_h * kernel_w <= 255 for max pooling. `argmax`: the position of the maximum in its window, saved
 * for the backward pass as rows of out_c bytes. An average divides by the whole window if count_padding is set,
 * otherwise by the number of pixels inside the image. A window may extend beyond the far edge (ceil mode). */
typedef struct {
    geometry g;
    fused_input x;
    void *y;
    u8 *argmax;
    i32 ld_y, pooling, count_padding, dtype;
} pooling_forward;

typedef struct {
    geometry g;
    const float *dy;
    const u8 *argmax;
    fused_gradient dx;
    i32 ld_dy, pooling, count_padding, unused;
} pooling_backward;

/* Batch statistics of z, if no convolution computed them. Leaves the same results as conv_forward with norm. */
typedef struct {
    batch_norm *norm;
    const void *z;
    i64 rows;
    i32 ld_z, dtype;
} batch_norm_forward;

/* Compute scale and shift from the running statistics, for evaluation. */
typedef struct {
    batch_norm *norm;
} batch_norm_fold;

/* dz from dy, where y = act(scale * z + shift). If `residual_sum` is set, it is residual_act(y + another tensor) and dy
 * is its gradient; then the gradient behind residual_act is also written back to dy, because the other branch needs it,
 * unless keep_dy is set. `reduced`: a fused_gradient has already masked dy and filled norm->sums. dz may be dy.
 * `dtype`: of z and residual_sum. */
typedef struct {
    batch_norm *norm;
    const void *z, *residual_sum;
    float *dy, *dz;
    i64 rows;
    i32 ld_z, ld_residual_sum, ld_dy, ld_dz, act, residual_act, reduced, keep_dy, dtype, unused;
} batch_norm_backward;

/* y = act(a + b), a residual connection. If b.data is null, this stores `a` with its fused operations applied. */
typedef struct {
    fused_input a, b;
    void *y;
    i64 rows;
    i32 channels, ld_y, act, dtype;
} add_forward;

/* target (+)= dy * act'(y). y is null if act is none. `dtype`: of y. */
typedef struct {
    const float *dy;
    const void *y;
    float *target;
    i64 rows;
    i32 channels, ld_dy, ld_y, ld_target, act, accumulate, dtype, unused;
} add_backward;

/* Local response normalization: y = x * (k + alpha / size * (sum of x^2 over `size` neighboring channels))^-beta. */
typedef struct {
    fused_input x;
    void *y;
    i64 rows;
    i32 channels, ld_y, size, dtype;
    float alpha, beta, k, unused;
} lrn_forward;

typedef struct {
    fused_input x;
    const float *dy;
    fused_gradient dx;
    i64 rows;
    i32 channels, ld_dy, size, unused;
    float alpha, beta, k, unused2;
} lrn_backward;

/* Element i (its index without gaps: row * channels + channel) is kept if hash(i, *seed, salt) >= rate * 2^32, and then
 * divided by 1 - rate. dropout.c and phone_agent/backends/reference_layers.py implement the same hash, bit for bit. */
typedef struct {
    fused_input x;
    void *y;
    const u64 *seed;
    i64 rows;
    i32 channels, ld_y;
    float rate;
    u32 salt;
    i32 dtype, unused;
} dropout_forward;

typedef struct {
    const float *dy;
    fused_gradient dx;
    const u64 *seed;
    i64 rows;
    i32 channels, ld_dy;
    float rate;
    u32 salt;
} dropout_backward;

/* *loss = mean cross-entropy of softmax(logits); dlogits = *weight * its gradient. `smoothing`: label smoothing. */
typedef struct {
    const float *logits;
    const i32 *labels;
    const float *weight;
    float *dlogits;
    double *loss;
    i32 batch, classes, ld_logits, ld_dlogits;
    float smoothing, unused;
} softmax_loss;

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_NESTEROV, OPTIMIZER_LARS, OPTIMIZER_LAMB };

/* `momentum` is beta1 of LAMB. one_minus_* and bias_correction* (1 / (1 - momentum^step) and alike) are computed in
 * double precision by the caller, because fp32 would lose digits. */
typedef struct {
    float lr, trust_coefficient, epsilon;
    float momentum, one_minus_momentum, bias_correction;
    float beta2, one_minus_beta2, bias_correction2;
} optimizer_params;

/* A part of the packed buffers. `adaptive`: its update is scaled by norms over the whole segment (LARS, LAMB). */
typedef struct {
    i64 start, count;
    float weight_decay;
    i32 adaptive;
} segment;

/* With d = g + weight_decay * w:
 * SGD:      v = momentum * v + d; w -= lr * v
 * NESTEROV: the same v; w -= lr * (d + momentum * v)
 * LARS:     v = momentum * v + lr * ratio * d; w -= v; ratio = trust_coefficient * |w| / (|g| + weight_decay * |w|)
 * LAMB:     m = momentum * m + (1 - momentum) * g; v = beta2 * v + (1 - beta2) * g^2; w -= lr * ratio * r, with
 *           r = bias_correction * m / (sqrt(bias_correction2 * v) + epsilon) + weight_decay * w; ratio = |w| / |r|
 * The ratio is 1 if a segment is not adaptive or a norm is 0. `second_moments` is v of LAMB, and null otherwise. */
typedef struct {
    float *weights, *momenta, *second_moments;
    const float *gradients;
    const optimizer_params *params;
    const segment *segments;
    i32 count, optimizer;
} optimizer_update;

/* encoded = values + decoded `received` + residual. `residual` then holds the rounding error (error feedback). Both may
 * be null. `write_back`: values become what the receiver of `encoded` will decode. */
typedef struct {
    float *values, *residual;
    const void *received;
    void *encoded;
    i64 count;
    i32 dtype, write_back;
} encode;

/* values (+)= decoded `encoded`. */
typedef struct {
    const void *encoded;
    float *values;
    i64 count;
    i32 dtype, accumulate;
} decode;

enum { MAX_RANK = 16 };

/* A gradient matrix and its low-rank factors (PowerSGD), of rank 1, 2, 4, 8 or 16. `left` is (rows, rank), `right` and
 * `local_right` are (rank, columns). The steps, in this order:
 * SKETCH: matrix += residual; left = matrix x right^T.
 * ORTHONORMALIZE: the columns of `left`; columns that depend linearly on others become 0.
 * PROJECT: right = left^T x matrix.
 * RECONSTRUCT: residual = matrix - left x local_right; matrix = left x right. */
typedef struct {
    float *matrix, *residual, *left, *right;
    const float *local_right;
    i64 rows;
    i32 columns, rank;
} low_rank;

/* The part of an image that becomes the result. A window of the result's size is copied, and pixels outside the image
 * are zero. A window of any other size is resized and must lie inside the image. */
typedef struct {
    i32 top, left, height, width, flip, unused;
} crop_window;

/* out = (value - mean[c]) * inv_std[c] of the crops of some images. value = image / 255; or, if `color_matrices` is set
 * (3 channels only), matrix[c][0..2] . image / 255 + matrix[c][3], with one 3 x 4 matrix per image. */
typedef struct {
    const u8 *images;
    const crop_window *crops;
    const float *color_matrices, *mean, *inv_std;
    float *out;
    i32 batch, in_h, in_w, out_h, out_w, channels;
} augment;

/* `count` rounds of independent fused multiply-adds in registers, on every thread, in single precision or in double
 * precision. *flops receives the number of operations per thread. */
typedef struct {
    double *flops;
    i64 count;
    i32 in_double, unused;
} fma_peak;

/* C (+)= alpha A^T B in double precision. A is (depth, rows), B is (depth, columns), C is (rows, columns); the leading
 * dimensions count doubles. */
typedef struct {
    const double *a, *b;
    double *c;
    double alpha;
    i64 rows, columns, depth, lda, ldb, ldc;
    i32 accumulate, unused;
} dgemm;

/* One column of a LINPACK panel (LU factorization), `rows` doubles. The column is divided by the pivot. Then, times the
 * factor of each, it is subtracted from the `trailing_columns` columns behind it, which are `ld` doubles apart.
 * *next_pivot receives the row of the largest absolute value of the first trailing column; it is not written if there
 * is no trailing column. */
typedef struct {
    double *column;
    const double *factors;
    i64 *next_pivot;
    double pivot;
    i64 rows, ld;
    i32 trailing_columns, unused;
} eliminate;

typedef struct {
    i32 kind, unused;
    void *op;
} step;

/* What to do with a chunk received from the left neighbor in a ring. comm/schedule.py computes the schedule;
 * ring_allreduce.c carries it out. REDUCE_FINAL completes the sum over all ranks; COPY receives a completed sum. */
enum ring_op { RING_OP_REDUCE, RING_OP_REDUCE_FINAL, RING_OP_COPY };

/* One chunk on one hop around the ring: `count` elements of the buffer, `bytes` on the wire. `forward`: send it on to
 * the right neighbor. `cache_index`: where the encoded form of a completed chunk is cached for the allgather ring, or
 * -1. `op` and `forward` are ignored for the chunks that a ring starts with. */
typedef struct {
    i64 start, count, bytes;
    i32 op, forward, cache_index, unused;
} hop;

/* A message to send or receive. `slot`: the staging memory that holds it, or null if it lies in the buffer itself. */
typedef struct {
    void *request, *data, *slot;
    i64 bytes;
    i32 cache_index, unused;
} message;

/* Receives posted and sends in flight per ring. MPI buffers a message that nobody has posted a receive for, which
 * costs one more copy. */
enum { RING_MAX_IN_FLIGHT = 8 };

/* `initial`: the chunks that this rank sends first; `hops`: the chunks that it receives, in order. `receives` has
 * RING_MAX_IN_FLIGHT messages, `sends` one for each chunk that this rank sends. `is_allgather`: the initial chunks are
 * completed sums. `max_slots`: slots that the ring may hold at a time. It must exceed the number of initial chunks of
 * any rank, otherwise all ranks might wait for each other. The second half is the ring's progress. */
typedef struct {
    const hop *initial, *hops;
    message *receives, *sends;
    i64 initial_count, hop_count;
    i32 left_rank, right_rank, tag, is_allgather, max_slots, unused;
    i64 sends_ready, sends_posted, sends_done, receives_posted, receives_in_place, receives_done, slots_held,
        bytes_sent;
} ring;

/* Rings that run at the same time, after up to two other stages are done; -1: no dependency. */
typedef struct {
    i32 first_ring, ring_count, depends_on, also_depends_on, done, unused;
} stage;

enum span_kind { SPAN_SEND, SPAN_RECEIVE, SPAN_REDUCE };

/* A traced interval, in nanoseconds of the monotonic clock. For sends and receives: time spent waiting. */
typedef struct {
    i64 started, ended;
    i32 kind, unused;
} span;

/* One allreduce. `thread_pool` has one thread. `send`, `receive` and `test` are MPI_Isend, MPI_Irecv and MPI_Test, or
 * functions with the same signature; `datatype` is MPI_BYTE. A waiting rank sleeps for min_sleep_ns and doubles that up
 * to max_sleep_ns. `spans` may be null. */
typedef struct {
    ring *rings;
    stage *stages;
    float *buffer, *residual;
    void *thread_pool, *slots, **free_slots, **cached_slots;
    span *spans;
    const void *send, *receive, *test;
    void *datatype, *comm;
    i64 slot_bytes, slot_count, free_count, min_sleep_ns, max_sleep_ns, sleep_ns, slept_ns, idle_since;
    i32 ring_count, stage_count, dtype, span_capacity, span_count, error;
} allreduce;

enum ring_status { RING_DONE, RING_PENDING, RING_FAILED };

/* Exported. A thread pool is CORE_THREAD_POOL_BYTES of zeroed, 64-byte aligned memory that Python owns. */
typedef struct thread_pool thread_pool;
enum { CORE_THREAD_POOL_BYTES = 64 * 1024 };

#pragma GCC visibility push(default)
i32 core_abi(void);
i32 core_sizeof(i32 kind);
i32 core_isa_count(void);
const char *core_isa_name(i32 isa); /* best first */
i32 core_isa_supported(i32 isa);    /* by this processor and kernel */
i32 core_lanes(i32 isa);            /* floats per vector */
/* Bytes of workspace that this step needs when `threads` threads run it. */
i64 core_workspace(i32 isa, i32 threads, i32 kind, const void *op);
void core_pool_init(thread_pool *p, i32 isa, i32 threads, void *workspace);
void core_pool_work(thread_pool *p, i32 index); /* body of a worker thread, until shutdown; index 1 .. threads - 1 */
void core_pool_shutdown(thread_pool *p);
/* nanoseconds: null, or one i64 per step. */
void core_pool_run(thread_pool *p, const step *program, i32 count, i64 *nanoseconds);
/* Reset all progress, before the first call of core_allreduce_run. */
void core_allreduce_reset(allreduce *all);
/* Returns a ring_status. PENDING: call again; meanwhile the caller can handle signals and read and clear `spans`.
 * FAILED: `error` is the MPI error code. */
i32 core_allreduce_run(allreduce *all);
#pragma GCC visibility pop
