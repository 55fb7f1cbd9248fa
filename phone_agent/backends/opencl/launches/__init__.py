"""Kernel launches of each kind of op."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phone_agent.backends.opencl.emit import Launch, LaunchBuilder
from phone_agent.backends.opencl.launches.convolution import conv_backward_data, conv_backward_weights, conv_forward
from phone_agent.backends.opencl.launches.depthwise import (
    depthwise_backward_data,
    depthwise_backward_weights,
    depthwise_forward,
)
from phone_agent.backends.opencl.launches.elementwise import (
    add_backward,
    add_forward,
    dropout_backward,
    dropout_forward,
    norm_backward,
    norm_fold,
    norm_forward,
    softmax_loss,
)
from phone_agent.backends.opencl.launches.pooling import lrn_backward, lrn_forward, pool_backward, pool_forward
from phone_agent.core.ops import Kind
from phone_agent.nn.plan.ops import OpSpec

BuildLaunches = Callable[[OpSpec, LaunchBuilder], Iterable[Launch]]

LAUNCH_BUILDERS: dict[Kind, BuildLaunches] = {
    Kind.CONV_FORWARD: conv_forward,
    Kind.CONV_BACKWARD_DATA: conv_backward_data,
    Kind.CONV_BACKWARD_WEIGHTS: conv_backward_weights,
    Kind.DEPTHWISE_FORWARD: depthwise_forward,
    Kind.DEPTHWISE_BACKWARD_DATA: depthwise_backward_data,
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: depthwise_backward_weights,
    Kind.POOLING_FORWARD: pool_forward,
    Kind.POOLING_BACKWARD: pool_backward,
    Kind.BATCH_NORM_FORWARD: norm_forward,
    Kind.BATCH_NORM_FOLD: norm_fold,
    Kind.BATCH_NORM_BACKWARD: norm_backward,
    Kind.ADD_FORWARD: add_forward,
    Kind.ADD_BACKWARD: add_backward,
    Kind.LRN_FORWARD: lrn_forward,
    Kind.LRN_BACKWARD: lrn_backward,
    Kind.DROPOUT_FORWARD: dropout_forward,
    Kind.DROPOUT_BACKWARD: dropout_backward,
    Kind.SOFTMAX_LOSS: softmax_loss,
}


def build_launches(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    builder.begin_op(f"{op.name} {op.kind.name.lower()}")
    return list(LAUNCH_BUILDERS[op.kind](op, builder))
