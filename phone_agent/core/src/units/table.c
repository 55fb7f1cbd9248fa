/* The ISA's table: every kernel of the other units, by kind. */
#include "unit.h"

#define FOR_ALL_OPS(DO) \
    DO(CONV_FORWARD, conv_forward) \
    DO(CONV_BACKWARD_DATA, conv_backward_data) \
    DO(CONV_BACKWARD_WEIGHTS, conv_backward_weights) \
    DO(DEPTHWISE_FORWARD, depthwise_forward) \
    DO(DEPTHWISE_BACKWARD_DATA, depthwise_backward_data) \
    DO(DEPTHWISE_BACKWARD_WEIGHTS, depthwise_backward_weights) \
    DO(POOL_FORWARD, pool_forward) \
    DO(POOL_BACKWARD, pool_backward) \
    DO(NORM_FORWARD, norm_forward) \
    DO(NORM_FOLD, norm_fold) \
    DO(NORM_BACKWARD, norm_backward) \
    DO(JOIN_FORWARD, join_forward) \
    DO(JOIN_BACKWARD, join_backward) \
    DO(LRN_FORWARD, lrn_forward) \
    DO(LRN_BACKWARD, lrn_backward) \
    DO(DROPOUT_FORWARD, dropout_forward) \
    DO(DROPOUT_BACKWARD, dropout_backward) \
    DO(SOFTMAX_LOSS, softmax_loss) \
    DO(UPDATE, update) \
    DO(ENCODE, encode) \
    DO(DECODE, decode) \
    DO(LOWRANK_SKETCH, lowrank_sketch) \
    DO(LOWRANK_ORTHONORMALISE, lowrank_orthonormalise) \
    DO(LOWRANK_PROJECT, lowrank_project) \
    DO(LOWRANK_RESTORE, lowrank_restore) \
    DO(AUGMENT, augment) \
    DO(FMA_PEAK, fma_peak) \
    DO(DGEMM, dgemm) \
    DO(ELIMINATE, eliminate)

#define DECLARE(kind, op) \
    void JOINED(run_##op, TABLE)(worker * w, const void *p); \
    i64 JOINED(workspace_##op, TABLE)(i32 threads, const void *p);
#define RUN(kind, op) [kind] = JOINED(run_##op, TABLE),
#define WORKSPACE(kind, op) [kind] = JOINED(workspace_##op, TABLE),

FOR_ALL_OPS(DECLARE)
const isa_table TABLE = {.lanes = LANES, .run = {FOR_ALL_OPS(RUN)}, .workspace = {FOR_ALL_OPS(WORKSPACE)}};
