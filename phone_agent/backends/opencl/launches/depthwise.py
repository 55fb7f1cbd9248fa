"""Depthwise convolutions, in all three directions. See kernels/depthwise.cl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, Scratch
from phone_agent.backends.opencl.launches.convolution import bias_gradient, reduce_partials
from phone_agent.backends.opencl.launches.operands import (
    gradient_arguments,
    input_arguments,
    int_field,
    pointer_field,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import PartialSums, merge_gradients, merge_statistics
from phone_agent.backends.opencl.launches.products import Product, backward_products, forward_product, struct
from phone_agent.backends.opencl.program import Define
from phone_agent.nn.plan.ops import OpSpec, SharedStruct

TAPS = 3  # kernel size with compile-time taps: all known networks use it
MAX_STRIDE = 2
MIN_WIDTH = 4


def depthwise_forward(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, x, y, norm = (
        struct_field(op.fields["g"]),
        struct_field(op.fields["x"]),
        tensor_field(op.fields, "y"),
        op.fields.get("norm"),
    )
    product = forward_product(g, x)
    lines, count = _lines(builder, product)
    partials = None
    if isinstance(norm, SharedStruct):
        partials = PartialSums(builder.scratch(count * 2 * product.groups), count, lines * product.w.grid)
    kernel = _kernel(builder, "depthwise_forward", product, X=tensor_field(x, "data").type, Y=y.type)
    bias, act = pointer_field(op.fields, "bias"), int_field(op.fields, "act")
    tensors = (pointer_field(op.fields, "weights"), bias, y, None if partials is None else partials.scratch)
    epilogue = (int_field(op.fields, "ld_y"), act, int(bias is not None), int(partials is not None))
    arguments = (_struct(product, lines, int_field(g, "kernel_w")), *input_arguments(x), *tensors, *epilogue)
    yield builder.launch(kernel, arguments, (_vectors(builder, product), count), (1, 1))
    if partials is not None and isinstance(norm, SharedStruct):
        yield merge_statistics(builder, norm, partials, product.rows)


def depthwise_backward_data(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, dx = struct_field(op.fields["g"]), struct_field(op.fields["dx"])
    norm, dy = dx.get("norm"), {"data": op.fields["dy"], "ld": op.fields["ld_dy"]}
    products = [(product, *_lines(builder, product)) for product in backward_products(g)]
    channels, total = int_field(g, "in_c"), sum(count for _, _, count in products)
    parts = builder.scratch(total * 2 * channels) if isinstance(norm, SharedStruct) else None
    mean = pointer_field(norm.fields, "mean") if isinstance(norm, SharedStruct) else None
    first = 0
    for product, lines, count in products:
        here = None if parts is None else Scratch(parts.offset + first * 8 * channels)
        first += count
        kernel = _kernel(builder, "depthwise_backward_data", product, X="float", Y=tensor_field(dx, "y").type)
        descriptor = _struct(product, lines, int_field(g, "kernel_w"))
        arguments = (
            descriptor,
            *input_arguments(dy),
            pointer_field(op.fields, "weights"),
            *gradient_arguments(dx),
            mean,
            here,
        )
        yield builder.launch(kernel, arguments, (_vectors(builder, product), count), (1, 1))
    if parts is not None and isinstance(norm, SharedStruct):
        yield merge_gradients(builder, norm, PartialSums(parts, total, 0))


def depthwise_backward_weights(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, x = struct_field(op.fields["g"]), struct_field(op.fields["x"])
    product = forward_product(g, x)
    lines, count = _lines(builder, product)
    numbers = product.taps * product.groups
    weights = pointer_field(op.fields, "dweights")
    to: Argument = weights if count == 1 else builder.scratch(count * numbers)
    kernel = _kernel(builder, "depthwise_backward_weights", product, X=tensor_field(x, "data").type, Y="float")
    descriptor = _struct(product, lines, int_field(g, "kernel_w"))
    accumulate = int(builder.accumulate and count == 1)
    arguments = (
        descriptor,
        *input_arguments(x),
        pointer_field(op.fields, "dy"),
        to,
        int_field(op.fields, "ld_dy"),
        accumulate,
    )
    taps = 1 if _has_static_taps(product) else product.taps
    yield builder.launch(kernel, arguments, (_vectors(builder, product), count, taps), (1, 1, 1))
    if count > 1:
        yield reduce_partials(builder, to, weights, numbers, count)
    if op.fields.get("dbias") is not None:
        yield from bias_gradient(op, builder, product.rows, int_field(g, "out_c"))


def _has_static_taps(product: Product) -> bool:
    """Whether the kernel is compiled for these taps."""
    h, w = product.h, product.w
    supported = h.taps == w.taps == TAPS and h.spacing == w.spacing == 1 and h.stride <= MAX_STRIDE
    return supported and product.groups % MIN_WIDTH == 0


def _width(builder: LaunchBuilder, product: Product) -> int:
    """The widest vector without a tail; the widest at all if there is none."""
    width = builder.tiles.width
    while product.groups % width and width > MIN_WIDTH:
        width //= 2
    return builder.tiles.width if product.groups % width else width


def _kernel(builder: LaunchBuilder, name: str, product: Product, **defines: Define) -> Any:
    if _has_static_taps(product):
        defines |= {"STATIC_TAPS": 1, "TAPS_H": TAPS, "TAPS_W": TAPS, "STRIDE": product.h.stride}
    width = _width(builder, product)
    defines |= {"WIDTH": width, "TAIL": int(product.groups % width != 0), "PIXELS": builder.tiles.depthwise_pixels}
    return builder.kernel("depthwise", name, **defines)


def _vectors(builder: LaunchBuilder, product: Product) -> int:
    return -(-product.groups // _width(builder, product))


def _lines(builder: LaunchBuilder, product: Product) -> tuple[int, int]:
    """Image rows per work-item, and the number of work-items."""
    lines = product.batch * product.h.grid
    wanted = -(-builder.tiles.items_per_unit * builder.limits.compute_units // _vectors(builder, product))
    each = max(1, min(lines // wanted, builder.tiles.depthwise_lines))
    return each, -(-lines // each)


def _struct(product: Product, lines: int, kernel_w: int) -> np.generic:
    h, w = product.h, product.w
    return struct(
        {
            "batch": product.batch, "grid_h": h.grid, "grid_w": w.grid, "from_h": h.size, "from_w": w.size,
            "channels": product.groups,
            "taps_h": h.taps, "taps_w": w.taps, "stride": h.stride, "offset_h": h.offset, "offset_w": w.offset,
            "spacing_h": h.spacing, "spacing_w": w.spacing,
            "to_h": h.to_size, "to_w": w.to_size, "to_first_h": h.to_first, "to_first_w": w.to_first,
            "to_step": h.to_step,
            "kernel_w": kernel_w, "first_h": h.first, "first_w": w.first, "step_h": h.step, "step_w": w.step,
            "lines": lines,
        }
    )  # fmt: skip
