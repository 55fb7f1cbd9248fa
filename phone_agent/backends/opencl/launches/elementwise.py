"""Batch normalization that is not fused, addition and copy, dropout, and the softmax cross-entropy loss."""

from __future__ import annotations

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, LocalMemory, Scratch
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    float_field,
    gradient_arguments,
    input_arguments,
    int_field,
    norm_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import Gradient, fused_gradient_sums, gradient_sums, statistics
from phone_agent.core.ops import Act
from phone_agent.nn.plan.ops import FLOAT, OpSpec


def norm_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of = op.fields
    return statistics(builder, norm_field(of), tensor_field(of, "z"), int_field(of, "rows"), int_field(of, "ld_z"))


def norm_fold(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    norm = norm_field(op.fields).fields
    names = ("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
    channels = int_field(norm, "channels")
    kernel = builder.kernel("batch_norm", "batch_norm_fold", Z="float")
    pointers = [pointer_field(norm, name) for name in names]
    return [builder.launch_1d(kernel, (*pointers, float_field(norm, "epsilon"), channels), channels)]


def norm_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    """The sums, unless another op computed them; the coefficients; the pass that applies them."""
    of, norm = op.fields, norm_field(op.fields)
    reduced, rows = int_field(of, "reduced"), int_field(of, "rows")
    act = Act.NONE if reduced else int_field(of, "act")
    gradient = Gradient(
        pointer_field(of, "dy"), int_field(of, "ld_dy"), tensor_field(of, "z"), int_field(of, "ld_z"), act
    )
    sums = [] if reduced else gradient_sums(builder, norm, gradient, rows)
    k = builder.scratch(3 * int_field(norm.fields, "channels"))
    return [*sums, _coefficients(builder, norm.fields, k, rows), _apply(builder, of, gradient, k)]


def _coefficients(builder: LaunchBuilder, norm: Fields, k: Scratch, rows: int) -> Launch:
    channels = int_field(norm, "channels")
    pointers = [pointer_field(norm, name) for name in ("sums", "gamma", "inv_std", "dgamma", "dbeta")]
    kernel = builder.kernel("batch_norm", "batch_norm_coefficients", Z="float")
    return builder.launch_1d(kernel, (*pointers, k, rows, channels, builder.accumulate), channels)


def _apply(builder: LaunchBuilder, of: Fields, gradient: Gradient, k: Scratch) -> Launch:
    norm = norm_field(of).fields
    channels, rows = int_field(norm, "channels"), int_field(of, "rows")
    known = [pointer_field(norm, name) for name in ("mean", "scale", "shift")]
    numbers = (rows, channels, gradient.ld_z, gradient.ld_g, int_field(of, "ld_dz"), gradient.act)
    kernel = builder.kernel("batch_norm", "batch_norm_backward", Z=gradient.z.type)
    arguments = (k, gradient.z, gradient.g, pointer_field(of, "dz"), *known, *numbers)
    return builder.launch_per_channel(kernel, arguments, channels, rows)


def add_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, a = op.fields, struct_field(op.fields["a"])
    both = bool(of.get("b"))
    b, y = struct_field(of["b"]) if both else {}, tensor_field(of, "y")
    kernel = builder.kernel(
        "add", "add_forward", A=tensor_field(a, "data").type, B=tensor_field(b, "data").type, Y=y.type
    )
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    arguments = (
        *input_arguments(a),
        *input_arguments(b),
        y,
        rows,
        channels,
        int_field(of, "ld_y"),
        int_field(of, "act"),
        both,
    )
    return [builder.launch_per_channel(kernel, arguments, channels, rows)]


def add_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, y = op.fields, tensor_field(op.fields, "y")
    kernel = builder.kernel("add", "add_backward", A="float", B="float", Y=y.type)
    numbers = [int_field(of, name) for name in ("rows", "channels", "ld_dy", "ld_y", "ld_target", "act", "accumulate")]
    arguments = (pointer_field(of, "dy"), y, pointer_field(of, "target"), *numbers)
    return [builder.launch_per_channel(kernel, arguments, int_field(of, "channels"), int_field(of, "rows"))]


MAX_UINT32 = 0xFFFFFFFF


def dropout_forward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, x, y = op.fields, struct_field(op.fields["x"]), tensor_field(op.fields, "y")
    kernel = builder.kernel("dropout", "dropout_forward", X=tensor_field(x, "data").type, Y=y.type, M="float")
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    arguments = (
        *input_arguments(x),
        y,
        pointer_field(of, "seed"),
        rows,
        channels,
        int_field(of, "ld_y"),
        *_mask_arguments(of),
    )
    return [builder.launch_per_channel(kernel, arguments, channels, rows)]


def dropout_backward(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of, dx = op.fields, struct_field(op.fields["dx"])
    kernel = builder.kernel("dropout", "dropout_backward", X="float", Y="float", M=tensor_field(dx, "y").type)
    rows, channels = int_field(of, "rows"), int_field(of, "channels")
    numbers = (rows, channels, int_field(of, "ld_dy"), *_mask_arguments(of))
    arguments = (pointer_field(of, "dy"), *gradient_arguments(dx), pointer_field(of, "seed"), *numbers)
    return [builder.launch_per_channel(kernel, arguments, channels, rows), *fused_gradient_sums(builder, dx, rows)]


def _mask_arguments(of: Fields) -> list[Argument]:
    """Salt, threshold, and the factor of kept elements."""
    rate = np.float32(float_field(of, "rate"))
    threshold = min(int(float(rate) * 2**32), MAX_UINT32)
    return [np.uint32(int_field(of, "salt")), np.uint32(threshold), np.float32(1) / (np.float32(1) - rate)]


GROUP = 64


def softmax_loss(op: OpSpec, builder: LaunchBuilder) -> list[Launch]:
    of = op.fields
    batch, losses = int_field(of, "batch"), builder.scratch(int_field(of, "batch"))
    pointers = [pointer_field(of, name) for name in ("logits", "labels", "weight", "dlogits")]
    numbers = [int_field(of, name) for name in ("batch", "classes", "ld_logits", "ld_dlogits")]
    kernel = builder.kernel("softmax_loss", "softmax_cross_entropy")
    arguments = (*pointers, losses, *numbers, float_field(of, "smoothing"), LocalMemory(GROUP * FLOAT))
    return [
        builder.launch(kernel, arguments, (batch * GROUP,), (GROUP,)),
        builder.launch_1d(
            builder.kernel("softmax_loss", "mean_loss"), (losses, pointer_field(of, "loss"), batch), 1, 1
        ),
    ]
