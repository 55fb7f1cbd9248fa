"""Convolutions of any geometry, all three directions: fully connected layers are 1x1. See kernels/convolution.cl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, Scratch
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    int_field,
    pointer_field,
    sink,
    source,
    struct_field,
    tensor_field,
)
from phone_agent.backends.opencl.launches.partial_sums import PartialSums, merge_gradients, merge_statistics
from phone_agent.backends.opencl.launches.products import (
    Product,
    Tiling,
    backward_products,
    choose_tiling,
    forward_product,
    product_struct,
    struct,
)
from phone_agent.backends.opencl.program import Define
from phone_agent.nn.plan.ops import OpSpec, Pointer, SharedStruct

PACK_ROWS_PER_ITEM = 16  # rows of the weights that one item packs
FEW_ROWS = 64  # of a product: weights are hardly used more than once, and are read where they are


def conv_forward(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, x, y, norm = (
        struct_field(step.fields["g"]),
        struct_field(step.fields["x"]),
        tensor_field(step.fields, "y"),
        step.fields.get("norm"),
    )
    product = forward_product(g, x)
    shared = _cut(make, product)
    counted = _parts(make, [(product, shared)], norm)
    columns = product.groups * product.columns
    direct = product.rows <= FEW_ROWS and product.columns % (shared.vectors * make.tiles.width) == 0
    weights: Argument = pointer_field(step.fields, "weights")
    if not direct:
        packed = _room(make, product, shared)
        yield _pack(make, g, product, shared, packed, weights=weights, backward=False)
        weights = packed
    kernel = _kernel(make, "conv_forward", product, shared, X=tensor_field(x, "data").type, Y=y.type)
    bias, act = pointer_field(step.fields, "bias"), int_field(step.fields, "act")
    finish = (int_field(step.fields, "ld_y"), act, int(bias is not None), int(counted is not None))
    into = (y, None if counted is None else counted.scratch)
    described = product_struct(product, shared, ld_weights=columns if direct else None)
    yield _launch(make, kernel, (described, *source(x), weights, bias, *into, *finish), product, shared)
    if counted is not None and isinstance(norm, SharedStruct):
        yield merge_statistics(make, norm, counted, product.rows)


def conv_backward_data(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, dx = struct_field(step.fields["g"]), struct_field(step.fields["dx"])
    norm, dy = dx.get("norm"), {"data": step.fields["dy"], "ld": step.fields["ld_dy"]}
    products = [(product, _cut(make, product)) for product in backward_products(g)]
    counted = _parts(make, products, norm)
    mean = pointer_field(norm.fields, "mean") if isinstance(norm, SharedStruct) else None
    weights, first = pointer_field(step.fields, "weights"), 0
    for product, shared in products:
        packed = _room(make, product, shared)
        if product.depth:
            yield _pack(make, g, product, shared, packed, weights=weights, backward=True)
        kernel = _kernel(make, "conv_backward_data", product, shared, X="float", Y=tensor_field(dx, "y").type)
        parts = None if counted is None else Scratch(counted.scratch.offset + first * 8 * int_field(g, "in_c"))
        first += _row_items(make, product, shared)
        arguments = (product_struct(product, shared), *source(dy), packed, *sink(dx), mean, parts)
        yield _launch(make, kernel, arguments, product, shared)
    if counted is not None and isinstance(norm, SharedStruct):
        yield merge_gradients(make, norm, counted)


def conv_backward_weights(step: OpSpec, make: LaunchBuilder) -> Iterator[Launch]:
    g, x, tiles = struct_field(step.fields["g"]), struct_field(step.fields["x"]), make.tiles
    product = forward_product(g, x)
    length = product.run_taps * product.channels
    tiles_a_run = -(-length // tiles.gradient_rows)
    shared = choose_tiling(product, tiles_a_run, tiles, make.limits, others=product.runs * product.groups)
    blocks_a_run = -(-tiles_a_run // (shared.tiles * tiles.group_rows))
    parts, each = _split(make, product, product.runs * blocks_a_run * shared.sweeps * product.groups)
    numbers = product.depth * product.columns * product.groups
    weights = pointer_field(step.fields, "dweights")
    to: Argument = weights if parts == 1 else make.scratch(parts * numbers)
    kernel = _kernel(make, "conv_backward_weights", product, shared, X=tensor_field(x, "data").type, Y="float")
    tensors = (product_struct(product, shared), *source(x), pointer_field(step.fields, "dy"), to)
    adding = int(make.adding and parts == 1)
    arguments = (*tensors, int_field(step.fields, "ld_dy"), blocks_a_run, each, adding)
    items = (shared.sweeps, product.runs * blocks_a_run * tiles.group_rows, parts * product.groups)
    yield make.launch(kernel, arguments, items, (tiles.group_columns, tiles.group_rows, 1))
    if parts > 1:
        yield add_parts(make, to, weights, numbers, parts)
    if step.fields.get("dbias") is not None:
        yield from bias_gradient(step, make, product.rows, int_field(g, "out_c"))


def bias_gradient(step: OpSpec, make: LaunchBuilder, rows: int, columns: int) -> Iterator[Launch]:
    vectors = -(-columns // make.tiles.width)
    wanted = -(-make.tiles.items_a_unit * make.limits.compute_units // vectors)
    parts = max(1, min(wanted, rows // 32), -(-rows // make.tiles.gradient_pixels))
    each = -(-rows // parts)
    parts = -(-rows // each)
    dbias = pointer_field(step.fields, "dbias")
    to: Argument = dbias if parts == 1 else make.scratch(parts * columns)
    arguments = (pointer_field(step.fields, "dy"), to, rows, columns, int_field(step.fields, "ld_dy"), each, parts)
    adding = int(make.adding and parts == 1)
    kernel = make.kernel("reduce_partials", "partial_column_sums", WIDTH=make.tiles.width, TAIL=1)
    yield make.launch(kernel, (*arguments, adding), (vectors, parts), (1, 1))
    if parts > 1:
        yield add_parts(make, to, dbias, columns, parts)


def add_parts(make: LaunchBuilder, parts: Argument, to: Pointer | None, numbers: int, count: int) -> Launch:
    kernel = make.kernel("reduce_partials", "reduce_partials", WIDTH=make.tiles.width, TAIL=1)
    arguments = (parts, to, np.int64(numbers), count, int(make.adding))
    return make.over(kernel, arguments, -(-numbers // make.tiles.width))


def _kernel(make: LaunchBuilder, name: str, product: Product, shared: Tiling, **types: Define) -> Any:
    tiles = make.tiles
    return make.kernel(
        "convolution", name, **types, TAIL=int(product.columns % tiles.width != 0),
        WIDTH=tiles.width, ROWS=tiles.rows, COLUMNS=shared.vectors,
        DEPTH=tiles.depth, TILES=tiles.tiles, SWEEP=tiles.sweep,
        GROUP_ROWS=tiles.group_rows, GROUP_COLUMNS=tiles.group_columns,
        WGRAD_ROWS=tiles.gradient_rows, WGRAD_DEPTH=tiles.gradient_depth,
    )  # fmt: skip


def _cut(make: LaunchBuilder, product: Product) -> Tiling:
    return choose_tiling(product, -(-product.rows // make.tiles.rows), make.tiles, make.limits, others=product.groups)


def _row_items(make: LaunchBuilder, product: Product, shared: Tiling) -> int:
    return -(-product.rows // (make.tiles.rows * shared.tiles))


def _launch(
    make: LaunchBuilder, kernel: Any, arguments: tuple[Argument, ...], product: Product, shared: Tiling
) -> Launch:
    items = (shared.sweeps, _row_items(make, product, shared), product.groups)
    return make.launch(kernel, arguments, items, (make.tiles.group_columns, make.tiles.group_rows, 1))


def _parts(make: LaunchBuilder, products: list[tuple[Product, Tiling]], norm: object) -> PartialSums | None:
    """Room for what each item tells of its rows, where a normalisation wants to know."""
    if not isinstance(norm, SharedStruct):
        return None
    channels = int_field(norm.fields, "channels")
    count = sum(_row_items(make, *each) for each in products)
    return PartialSums(make.scratch(count * 2 * channels), count, products[0][1].tiles * make.tiles.rows)


def _room(make: LaunchBuilder, product: Product, shared: Tiling) -> Scratch:
    return make.scratch(product.groups * shared.panels * product.depth * shared.vectors * make.tiles.width)


def _pack(
    make: LaunchBuilder,
    g: Fields,
    product: Product,
    shared: Tiling,
    packed: Scratch,
    *,
    weights: Argument,
    backward: bool,
) -> Launch:
    h, w = product.h, product.w
    channels, columns, groups = product.channels, product.columns, product.groups
    filters = channels * groups if backward else columns * groups
    # Weights are (kernel h, kernel w, channels in / groups, channels out).
    steps = (
        {"stride_tap": columns * filters, "stride_group": channels, "stride_row": 1, "stride_column": filters}
        if backward
        else {"stride_tap": channels * filters, "stride_group": columns, "stride_row": filters, "stride_column": 1}
    )
    described = struct(
        {
            "groups": groups, "panels": shared.panels, "depth": product.depth, "columns": columns, "channels": channels,
            "taps_w": w.taps, "first_h": h.first, "first_w": w.first, "step_h": h.step, "step_w": w.step,
            "kernel_w": int_field(g, "kernel_w"), **steps,
        }
    )  # fmt: skip
    panel = shared.vectors * make.tiles.width
    kernel = make.kernel("pack_weights", "pack_weights", PANEL=panel, ROWS_PER_ITEM=PACK_ROWS_PER_ITEM)
    items = (-(-product.depth // PACK_ROWS_PER_ITEM), shared.panels, groups)
    return make.launch(kernel, (described, weights, packed), items, (1, 1, 1))


def _split(make: LaunchBuilder, product: Product, items: int) -> tuple[int, int]:
    """Into how many parts pixels are cut, and how many each has."""
    tiles = make.tiles
    wanted = -(-tiles.items_a_unit * make.limits.compute_units // items)
    most = max(1, product.rows // (2 * tiles.gradient_depth))
    parts = max(min(wanted, most), -(-product.rows // tiles.gradient_pixels))
    each = -(-product.rows // parts)
    return -(-product.rows // each), each
