"""Convolutions of any geometry, in all three directions. Dense layers are 1x1. See kernels/convolution.cl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from phone_agent.backends.opencl.emit import Argument, Launch, LaunchBuilder, Scratch
from phone_agent.backends.opencl.launches.operands import (
    Fields,
    gradient_arguments,
    input_arguments,
    int_field,
    pointer_field,
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
FEW_ROWS = 64  # of a product: weights are hardly reused, so they are read without packing


def conv_forward(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, x, y, norm = (
        struct_field(op.fields["g"]),
        struct_field(op.fields["x"]),
        tensor_field(op.fields, "y"),
        op.fields.get("norm"),
    )
    product = forward_product(g, x)
    tiling = _tiling(builder, product)
    partials = _partial_sums(builder, [(product, tiling)], norm)
    columns = product.groups * product.columns
    direct = product.rows <= FEW_ROWS and product.columns % (tiling.vectors * builder.tiles.width) == 0
    weights: Argument = pointer_field(op.fields, "weights")
    if not direct:
        packed = _packed_weights(builder, product, tiling)
        yield _pack(builder, g, product, tiling, packed, weights=weights, backward=False)
        weights = packed
    kernel = _kernel(builder, "conv_forward", product, tiling, X=tensor_field(x, "data").type, Y=y.type)
    bias, act = pointer_field(op.fields, "bias"), int_field(op.fields, "act")
    epilogue = (int_field(op.fields, "ld_y"), act, int(bias is not None), int(partials is not None))
    into = (y, None if partials is None else partials.scratch)
    descriptor = product_struct(product, tiling, ld_weights=columns if direct else None)
    yield _launch(builder, kernel, (descriptor, *input_arguments(x), weights, bias, *into, *epilogue), product, tiling)
    if partials is not None and isinstance(norm, SharedStruct):
        yield merge_statistics(builder, norm, partials, product.rows)


def conv_backward_data(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, dx = struct_field(op.fields["g"]), struct_field(op.fields["dx"])
    norm, dy = dx.get("norm"), {"data": op.fields["dy"], "ld": op.fields["ld_dy"]}
    products = [(product, _tiling(builder, product)) for product in backward_products(g)]
    partials = _partial_sums(builder, products, norm)
    mean = pointer_field(norm.fields, "mean") if isinstance(norm, SharedStruct) else None
    weights, first = pointer_field(op.fields, "weights"), 0
    for product, tiling in products:
        packed = _packed_weights(builder, product, tiling)
        if product.depth:
            yield _pack(builder, g, product, tiling, packed, weights=weights, backward=True)
        kernel = _kernel(builder, "conv_backward_data", product, tiling, X="float", Y=tensor_field(dx, "y").type)
        parts = None if partials is None else Scratch(partials.scratch.offset + first * 8 * int_field(g, "in_c"))
        first += _row_items(builder, product, tiling)
        arguments = (
            product_struct(product, tiling),
            *input_arguments(dy),
            packed,
            *gradient_arguments(dx),
            mean,
            parts,
        )
        yield _launch(builder, kernel, arguments, product, tiling)
    if partials is not None and isinstance(norm, SharedStruct):
        yield merge_gradients(builder, norm, partials)


def conv_backward_weights(op: OpSpec, builder: LaunchBuilder) -> Iterator[Launch]:
    g, x, tiles = struct_field(op.fields["g"]), struct_field(op.fields["x"]), builder.tiles
    product = forward_product(g, x)
    length = product.run_taps * product.channels
    tiles_per_run = -(-length // tiles.gradient_rows)
    tiling = choose_tiling(product, tiles_per_run, tiles, builder.limits, others=product.runs * product.groups)
    blocks_per_run = -(-tiles_per_run // (tiling.tiles * tiles.group_rows))
    parts, each = _split_pixels(builder, product, product.runs * blocks_per_run * tiling.sweeps * product.groups)
    numbers = product.depth * product.columns * product.groups
    weights = pointer_field(op.fields, "dweights")
    to: Argument = weights if parts == 1 else builder.scratch(parts * numbers)
    kernel = _kernel(builder, "conv_backward_weights", product, tiling, X=tensor_field(x, "data").type, Y="float")
    tensors = (product_struct(product, tiling), *input_arguments(x), pointer_field(op.fields, "dy"), to)
    accumulate = int(builder.accumulate and parts == 1)
    arguments = (*tensors, int_field(op.fields, "ld_dy"), blocks_per_run, each, accumulate)
    items = (tiling.sweeps, product.runs * blocks_per_run * tiles.group_rows, parts * product.groups)
    yield builder.launch(kernel, arguments, items, (tiles.group_columns, tiles.group_rows, 1))
    if parts > 1:
        yield reduce_partials(builder, to, weights, numbers, parts)
    if op.fields.get("dbias") is not None:
        yield from bias_gradient(op, builder, product.rows, int_field(g, "out_c"))


def bias_gradient(op: OpSpec, builder: LaunchBuilder, rows: int, columns: int) -> Iterator[Launch]:
    vectors = -(-columns // builder.tiles.width)
    wanted = -(-builder.tiles.items_per_unit * builder.limits.compute_units // vectors)
    parts = max(1, min(wanted, rows // 32), -(-rows // builder.tiles.gradient_pixels))
    each = -(-rows // parts)
    parts = -(-rows // each)
    dbias = pointer_field(op.fields, "dbias")
    to: Argument = dbias if parts == 1 else builder.scratch(parts * columns)
    arguments = (pointer_field(op.fields, "dy"), to, rows, columns, int_field(op.fields, "ld_dy"), each, parts)
    accumulate = int(builder.accumulate and parts == 1)
    kernel = builder.kernel("reduce_partials", "partial_column_sums", WIDTH=builder.tiles.width, TAIL=1)
    yield builder.launch(kernel, (*arguments, accumulate), (vectors, parts), (1, 1))
    if parts > 1:
        yield reduce_partials(builder, to, dbias, columns, parts)


def reduce_partials(builder: LaunchBuilder, parts: Argument, to: Pointer | None, numbers: int, count: int) -> Launch:
    kernel = builder.kernel("reduce_partials", "reduce_partials", WIDTH=builder.tiles.width, TAIL=1)
    arguments = (parts, to, np.int64(numbers), count, int(builder.accumulate))
    return builder.launch_1d(kernel, arguments, -(-numbers // builder.tiles.width))


def _kernel(builder: LaunchBuilder, name: str, product: Product, tiling: Tiling, **types: Define) -> Any:
    tiles = builder.tiles
    return builder.kernel(
        "convolution", name, **types, TAIL=int(product.columns % tiles.width != 0),
        WIDTH=tiles.width, ROWS=tiles.rows, COLUMNS=tiling.vectors,
        DEPTH=tiles.depth, TILES=tiles.tiles, SWEEP=tiles.sweep,
        GROUP_ROWS=tiles.group_rows, GROUP_COLUMNS=tiles.group_columns,
        WGRAD_ROWS=tiles.gradient_rows, WGRAD_DEPTH=tiles.gradient_depth,
    )  # fmt: skip


def _tiling(builder: LaunchBuilder, product: Product) -> Tiling:
    return choose_tiling(
        product, -(-product.rows // builder.tiles.rows), builder.tiles, builder.limits, others=product.groups
    )


def _row_items(builder: LaunchBuilder, product: Product, tiling: Tiling) -> int:
    return -(-product.rows // (builder.tiles.rows * tiling.tiles))


def _launch(
    builder: LaunchBuilder, kernel: Any, arguments: tuple[Argument, ...], product: Product, tiling: Tiling
) -> Launch:
    items = (tiling.sweeps, _row_items(builder, product, tiling), product.groups)
    return builder.launch(kernel, arguments, items, (builder.tiles.group_columns, builder.tiles.group_rows, 1))


def _partial_sums(builder: LaunchBuilder, products: list[tuple[Product, Tiling]], norm: object) -> PartialSums | None:
    """Scratch memory for the partial sums of each work-item, if there is a batch normalization."""
    if not isinstance(norm, SharedStruct):
        return None
    channels = int_field(norm.fields, "channels")
    count = sum(_row_items(builder, *each) for each in products)
    return PartialSums(builder.scratch(count * 2 * channels), count, products[0][1].tiles * builder.tiles.rows)


def _packed_weights(builder: LaunchBuilder, product: Product, tiling: Tiling) -> Scratch:
    return builder.scratch(product.groups * tiling.panels * product.depth * tiling.vectors * builder.tiles.width)


def _pack(
    builder: LaunchBuilder,
    g: Fields,
    product: Product,
    tiling: Tiling,
    packed: Scratch,
    *,
    weights: Argument,
    backward: bool,
) -> Launch:
    h, w = product.h, product.w
    channels, columns, groups = product.channels, product.columns, product.groups
    filters = channels * groups if backward else columns * groups
    # Weights are (kernel h, kernel w, input channels / groups, output channels).
    steps = (
        {"stride_tap": columns * filters, "stride_group": channels, "stride_row": 1, "stride_column": filters}
        if backward
        else {"stride_tap": channels * filters, "stride_group": columns, "stride_row": filters, "stride_column": 1}
    )
    descriptor = struct(
        {
            "groups": groups, "panels": tiling.panels, "depth": product.depth, "columns": columns, "channels": channels,
            "taps_w": w.taps, "first_h": h.first, "first_w": w.first, "step_h": h.step, "step_w": w.step,
            "kernel_w": int_field(g, "kernel_w"), **steps,
        }
    )  # fmt: skip
    panel = tiling.vectors * builder.tiles.width
    kernel = builder.kernel("pack_weights", "pack_weights", PANEL=panel, ROWS_PER_ITEM=PACK_ROWS_PER_ITEM)
    items = (-(-product.depth // PACK_ROWS_PER_ITEM), tiling.panels, groups)
    return builder.launch(kernel, (descriptor, weights, packed), items, (1, 1, 1))


def _split_pixels(builder: LaunchBuilder, product: Product, items: int) -> tuple[int, int]:
    """The number of parts that pixels are split into, and pixels per part."""
    tiles = builder.tiles
    wanted = -(-tiles.items_per_unit * builder.limits.compute_units // items)
    most = max(1, product.rows // (2 * tiles.gradient_depth))
    parts = max(min(wanted, most), -(-product.rows // tiles.gradient_pixels))
    each = -(-product.rows // parts)
    return -(-product.rows // each), each
