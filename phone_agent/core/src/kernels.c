/* All kernels, compiled once for each ISA: build.py defines ISA_HEADER. Everything but the table is static. */
#include ISA_HEADER
#include "rows.h"
#include "gemm.h"

#include "winograd.c"
#include "conv.c"
#include "depthwise.c"
#include "pool.c"
#include "lrn.c"
#include "norm.c"
#include "dropout.c"
#include "loss.c"
#include "optimiser.c"
#include "wire.c"
#include "augment.c"
#include "peak.c"

const isa_table TABLE = {
    .lanes = LANES,
    .run =
        {
            [CONV_FORWARD] = run_conv_forward,
            [CONV_BACKWARD_DATA] = run_conv_backward_data,
            [CONV_BACKWARD_WEIGHTS] = run_conv_backward_weights,
            [DEPTHWISE_FORWARD] = run_depthwise_forward,
            [DEPTHWISE_BACKWARD_DATA] = run_depthwise_backward_data,
            [DEPTHWISE_BACKWARD_WEIGHTS] = run_depthwise_backward_weights,
            [POOL_FORWARD] = run_pool_forward,
            [POOL_BACKWARD] = run_pool_backward,
            [LRN_FORWARD] = run_lrn_forward,
            [LRN_BACKWARD] = run_lrn_backward,
            [NORM_FORWARD] = run_norm_forward,
            [NORM_FOLD] = run_norm_fold,
            [NORM_BACKWARD] = run_norm_backward,
            [JOIN_FORWARD] = run_join_forward,
            [JOIN_BACKWARD] = run_join_backward,
            [DROPOUT_FORWARD] = run_dropout_forward,
            [DROPOUT_BACKWARD] = run_dropout_backward,
            [SOFTMAX_LOSS] = run_softmax_loss,
            [SGD] = run_sgd,
            [CONVERT] = run_convert,
            [REDUCE] = run_reduce,
            [AUGMENT] = run_augment,
            [FMA_PEAK] = run_fma_peak,
        },
    .workspace =
        {
            [CONV_FORWARD] = workspace_conv_forward,
            [CONV_BACKWARD_DATA] = workspace_conv_backward_data,
            [CONV_BACKWARD_WEIGHTS] = workspace_conv_backward_weights,
            [DEPTHWISE_FORWARD] = workspace_depthwise_forward,
            [DEPTHWISE_BACKWARD_DATA] = workspace_depthwise_backward_data,
            [DEPTHWISE_BACKWARD_WEIGHTS] = workspace_depthwise_backward_weights,
            [POOL_FORWARD] = workspace_pool_forward,
            [POOL_BACKWARD] = workspace_pool_backward,
            [LRN_FORWARD] = workspace_lrn_forward,
            [LRN_BACKWARD] = workspace_lrn_backward,
            [NORM_FORWARD] = workspace_norm_forward,
            [NORM_FOLD] = workspace_norm_fold,
            [NORM_BACKWARD] = workspace_norm_backward,
            [JOIN_FORWARD] = workspace_join_forward,
            [JOIN_BACKWARD] = workspace_join_backward,
            [DROPOUT_FORWARD] = workspace_dropout_forward,
            [DROPOUT_BACKWARD] = workspace_dropout_backward,
            [SOFTMAX_LOSS] = workspace_softmax_loss,
            [SGD] = workspace_sgd,
            [CONVERT] = workspace_convert,
            [REDUCE] = workspace_reduce,
            [AUGMENT] = workspace_augment,
            [FMA_PEAK] = workspace_fma_peak,
        },
};
