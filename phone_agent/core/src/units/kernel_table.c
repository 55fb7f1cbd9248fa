/* The kernel table of one ISA: every kernel of the other units, by op kind. */
#include "unit.h"

#define FOR_EACH_OP(DO) \
    DO(CONV_FORWARD, conv_forward) \
    DO(CONV_BACKWARD_DATA, conv_backward_data) \
    DO(CONV_BACKWARD_WEIGHTS, conv_backward_weights) \
    DO(DEPTHWISE_FORWARD, depthwise_forward) \
    DO(DEPTHWISE_BACKWARD_DATA, depthwise_backward_data) \
    DO(DEPTHWISE_BACKWARD_WEIGHTS, depthwise_backward_weights) \
    DO(POOLING_FORWARD, pooling_forward) \
    DO(POOLING_BACKWARD, pooling_backward) \
    DO(BATCH_NORM_FORWARD, batch_norm_forward) \
    DO(BATCH_NORM_FOLD, batch_norm_fold) \
    DO(BATCH_NORM_BACKWARD, batch_norm_backward) \
    DO(ADD_FORWARD, add_forward) \
    DO(ADD_BACKWARD, add_backward) \
    DO(LRN_FORWARD, lrn_forward) \
    DO(LRN_BACKWARD, lrn_backward) \
    DO(DROPOUT_FORWARD, dropout_forward) \
    DO(DROPOUT_BACKWARD, dropout_backward) \
    DO(SOFTMAX_LOSS, softmax_loss) \
    DO(OPTIMIZER_UPDATE, optimizer_update) \
    DO(ENCODE, encode) \
    DO(DECODE, decode) \
    DO(LOWRANK_SKETCH, lowrank_sketch) \
    DO(LOWRANK_ORTHONORMALIZE, lowrank_orthonormalize) \
    DO(LOWRANK_PROJECT, lowrank_project) \
    DO(LOWRANK_RECONSTRUCT, lowrank_reconstruct) \
    DO(AUGMENT, augment) \
    DO(FMA_PEAK, fma_peak) \
    DO(DGEMM, dgemm) \
    DO(ELIMINATE, eliminate)

#define DECLARE(kind, op) \
    void FOR_ISA(run_##op)(worker * w, const void *p); \
    i64 FOR_ISA(workspace_##op)(i32 threads, const void *p);
#define RUN(kind, op) [kind] = FOR_ISA(run_##op),
#define WORKSPACE(kind, op) [kind] = FOR_ISA(workspace_##op),

FOR_EACH_OP(DECLARE)
const kernel_table FOR_ISA(kernels) = {
    .lanes = LANES, .run = {FOR_EACH_OP(RUN)}, .workspace = {FOR_EACH_OP(WORKSPACE)}};
