"""Convolutions channel by channel, all three directions. See kernels/depthwise.cl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, Scratch
from phone_agent.backends.opencl.launches.convolution import add_parts, bias_gradient
from phone_agent.backends.opencl.launches.operands import (
    int_field,
    pointer_field,
    sink,
    source,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import PartialSums, merge_gradients, merge_statistics
from phone_agent.backends.opencl.launches.products import Product, backward_products, forward_product, struct
from phone_agent.backends.opencl.program import Define
from phone_agent.nn.plan.ops import OpSpec, SharedStruct

TAPS = 3  # on a side, of what kernels are compiled for: all networks have that
MOST_STRIDE = 2
LEAST_WIDTH = 4


def depthwise_forward(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, x, y, norm = (
        struct_field(step.fields["g"]),
        struct_field(step.fields["x"]),
        tensor_field(step.fields, "y"),
        step.fields.get("norm"),
    )
    product = forward_product(g, x)
    lines, count = _lines(make, product)
    counted = None
    if isinstance(norm, SharedStruct):
        counted = PartialSums(make.scratch(count * 2 * product.groups), count, lines * product.w.grid)
    kernel = _kernel(make, "depthwise_forward", product, X=tensor_field(x, "data").type, Y=y.type)
    bias, act = pointer_field(step.fields, "bias"), int_field(step.fields, "act")
    tensors = (pointer_field(step.fields, "weights"), bias, y, None if counted is None else counted.scratch)
    finish = (int_field(step.fields, "ld_y"), act, int(bias is not None), int(counted is not None))
    arguments = (_struct(product, lines, int_field(g, "kernel_w")), *source(x), *tensors, *finish)
    yield make.launch(kernel, arguments, (_vectors(make, product), count), (1, 1))
    if counted is not None and isinstance(norm, SharedStruct):
        yield merge_statistics(make, norm, counted, product.rows)


def depthwise_backward_data(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, dx = struct_field(step.fields["g"]), struct_field(step.fields["dx"])
    norm, dy = dx.get("norm"), {"data": step.fields["dy"], "ld": step.fields["ld_dy"]}
    products = [(product, *_lines(make, product)) for product in backward_products(g)]
    channels, total = int_field(g, "in_c"), sum(count for _, _, count in products)
    parts = make.scratch(total * 2 * channels) if isinstance(norm, SharedStruct) else None
    mean = pointer_field(norm.fields, "mean") if isinstance(norm, SharedStruct) else None
    first = 0
    for product, lines, count in products:
        here = None if parts is None else Scratch(parts.offset + first * 8 * channels)
        first += count
        kernel = _kernel(make, "depthwise_backward_data", product, X="float", Y=tensor_field(dx, "y").type)
        described = _struct(product, lines, int_field(g, "kernel_w"))
        arguments = (described, *source(dy), pointer_field(step.fields, "weights"), *sink(dx), mean, here)
        yield make.launch(kernel, arguments, (_vectors(make, product), count), (1, 1))
    if parts is not None and isinstance(norm, SharedStruct):
        yield merge_gradients(make, norm, PartialSums(parts, total, 0))


def depthwise_backward_weights(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, x = struct_field(step.fields["g"]), struct_field(step.fields["x"])
    product = forward_product(g, x)
    lines, count = _lines(make, product)
    numbers = product.taps * product.groups
    weights = pointer_field(step.fields, "dweights")
    to: Argument = weights if count == 1 else make.scratch(count * numbers)
    kernel = _kernel(make, "depthwise_backward_weights", product, X=tensor_field(x, "data").type, Y="float")
    described = _struct(product, lines, int_field(g, "kernel_w"))
    adding = int(make.adding and count == 1)
    arguments = (described, *source(x), pointer_field(step.fields, "dy"), to, int_field(step.fields, "ld_dy"), adding)
    taps = 1 if _fixed(product) else product.taps
    yield make.launch(kernel, arguments, (_vectors(make, product), count, taps), (1, 1, 1))
    if count > 1:
        yield add_parts(make, to, weights, numbers, count)
    if step.fields.get("dbias") is not None:
        yield from bias_gradient(step, make, product.rows, int_field(g, "out_c"))


def _fixed(product: Product) -> bool:
    """Whether the kernel is compiled for these taps: those that networks have."""
    h, w = product.h, product.w
    usual = h.taps == w.taps == TAPS and h.spacing == w.spacing == 1 and h.stride <= MOST_STRIDE
    return usual and product.groups % LEAST_WIDTH == 0


def _width(make: LaunchBuilder, product: Product) -> int:
    """The widest vector that has no tail; if there is none, the widest."""
    width = make.tiles.width
    while product.groups % width and width > LEAST_WIDTH:
        width //= 2
    return make.tiles.width if product.groups % width else width


def _kernel(make: LaunchBuilder, name: str, product: Product, **defines: Define) -> Any:
    if _fixed(product):
        defines |= {"STATIC_TAPS": 1, "TAPS_H": TAPS, "TAPS_W": TAPS, "STRIDE": product.h.stride}
    width = _width(make, product)
    defines |= {"WIDTH": width, "TAIL": int(product.groups % width != 0), "PIXELS": make.tiles.depthwise_pixels}
    return make.kernel("depthwise", name, **defines)


def _vectors(make: LaunchBuilder, product: Product) -> int:
    return -(-product.groups // _width(make, product))


def _lines(make: LaunchBuilder, product: Product) -> tuple[int, int]:
    """Lines that one item has, and how many items that makes."""
    lines = product.batch * product.h.grid
    wanted = -(-make.tiles.items_a_unit * make.limits.compute_units // _vectors(make, product))
    each = max(1, min(lines // wanted, make.tiles.depthwise_lines))
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
