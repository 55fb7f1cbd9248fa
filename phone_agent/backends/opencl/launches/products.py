"""Convolutions as matrix products (implicit GEMM): their shapes and tilings. See kernels/convolution.cl."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phone_agent.backends.opencl.device import Limits
from phone_agent.backends.opencl.launches.operands import Fields, int_field
from phone_agent.backends.opencl.tiles import Tiles


@dataclass(frozen=True)
class Axis:
    """One dimension of the image in the product.

    Tap t of grid point j reads pixel j * stride + offset + t * spacing of `size`, with weight first + t * step; its
    result is pixel to_first + j * to_step of the target.
    """

    grid: int
    taps: int
    stride: int
    offset: int
    spacing: int
    size: int
    first: int
    step: int
    to_first: int
    to_step: int
    to_size: int


def forward_axis(g: Fields, direction: str) -> Axis:
    size, grid, kernel = (int_field(g, f"{name}_{direction}") for name in ("in", "out", "kernel"))
    offset = -int_field(g, f"pad_{direction}")
    return Axis(grid, kernel, int_field(g, "stride"), offset, int_field(g, "dilation"), size, 0, 1, 0, 1, grid)


def backward_axis(g: Fields, direction: str, phase: int) -> Axis:
    """Input pixels phase + j * stride. Tap k reaches them from output pixel (phase + pad - k * dilation) / stride + j.

    Only taps where that is an integer count. They are evenly spaced, and listed from the last, so that pixels ascend.
    """
    size, out, kernel, pad = (int_field(g, f"{name}_{direction}") for name in ("in", "out", "kernel", "pad"))
    stride, dilation = int_field(g, "stride"), int_field(g, "dilation")
    found = [k for k in reversed(range(kernel)) if (phase + pad - k * dilation) % stride == 0]
    first = found[0] if found else 0
    step = found[1] - first if len(found) > 1 else 0
    offset = (phase + pad - first * dilation) // stride
    grid = max(0, -(-(size - phase) // stride))
    return Axis(grid, len(found), 1, offset, -step * dilation // stride, out, first, step, phase, stride, size)


@dataclass(frozen=True)
class Product:
    """Rows (grid points of all images) times weights. `channels` and `columns` are those of one group."""

    h: Axis
    w: Axis
    batch: int
    channels: int
    columns: int
    groups: int
    merged: bool = False  # taps of a kernel row are contiguous in memory and read as one run

    @property
    def rows(self) -> int:
        return self.batch * self.h.grid * self.w.grid

    @property
    def taps(self) -> int:
        return self.h.taps * self.w.taps

    @property
    def depth(self) -> int:
        return self.taps * self.channels

    @property
    def run_taps(self) -> int:
        return self.w.taps if self.merged else 1

    @property
    def runs(self) -> int:
        return self.taps // self.run_taps if self.taps else 0


def forward_product(g: Fields, x: Fields) -> Product:
    groups = int_field(g, "groups")
    contiguous = groups == 1 and int_field(x, "ld") == int_field(g, "in_c") and not x.get("scale")
    merged = contiguous and int_field(g, "dilation") == 1
    channels, columns = int_field(g, "in_c") // groups, int_field(g, "out_c") // groups
    return Product(forward_axis(g, "h"), forward_axis(g, "w"), int_field(g, "batch"), channels, columns, groups, merged)


def backward_products(g: Fields) -> list[Product]:
    """One product per phase of the stride that has pixels."""
    groups, stride = int_field(g, "groups"), int_field(g, "stride")
    channels, columns = int_field(g, "out_c") // groups, int_field(g, "in_c") // groups
    phases = ((h, w) for h in range(stride) for w in range(stride))
    found = (
        Product(backward_axis(g, "h", h), backward_axis(g, "w", w), int_field(g, "batch"), channels, columns, groups)
        for h, w in phases
    )
    return [product for product in found if product.rows]


@dataclass(frozen=True)
class Tiling:
    """How a product is split: vectors per tile, panels in total, and tiles per work-item (down and across)."""

    vectors: int
    panels: int
    tiles: int
    sweep: int

    @property
    def sweeps(self) -> int:
        return -(-self.panels // self.sweep)


def choose_tiling(product: Product, row_tiles: int, tiles: Tiles, limits: Limits, *, others: int) -> Tiling:
    """Large enough to reuse what is loaded, small enough to keep the whole device busy.

    `row_tiles`: tiles in a column, of which a work-item may compute several. `others`: independent columns.
    """
    vectors = 1 if product.columns <= tiles.width else tiles.columns
    panels = -(-product.columns // (vectors * tiles.width))
    down, across = min(tiles.tiles, row_tiles), min(tiles.sweep, panels)
    wanted = tiles.items_per_unit * limits.compute_units
    while -(-row_tiles // down) * -(-panels // across) * others < wanted and (down > 1 or across > 1):
        if down >= across:
            down -= 1
        else:
            across -= 1
    # The same number of work-items, with an even load.
    down, across = -(-row_tiles // -(-row_tiles // down)), -(-panels // -(-panels // across))
    return Tiling(vectors, panels, down, across)


_NAMES = (
    "rows", "grid_h", "grid_w", "from_h", "from_w", "channels", "groups",
    "runs_h", "runs_w", "run_taps", "stride", "offset_h", "offset_w", "spacing_h", "spacing_w",
    "to_h", "to_w", "to_first_h", "to_first_w", "to_step",
    "columns", "panels", "depth", "tiles", "sweep", "packed", "ld_weights",
)  # fmt: skip


def product_struct(product: Product, tiling: Tiling, *, ld_weights: int | None = None) -> np.generic:
    """The `product` struct of the kernels. `ld_weights`: leading dimension of weights that are read unpacked."""
    h, w = product.h, product.w
    numbers = (
        product.rows, h.grid, w.grid, h.size, w.size, product.channels, product.groups,
        h.taps, w.taps // product.run_taps if product.taps else 1, product.run_taps,
        h.stride, h.offset, w.offset, h.spacing, w.spacing,
        h.to_size, w.to_size, h.to_first, w.to_first, h.to_step,
        product.columns, tiling.panels, product.depth, tiling.tiles, tiling.sweep,
        int(ld_weights is None), ld_weights or 0,
    )  # fmt: skip
    return struct(dict(zip(_NAMES, numbers, strict=True)))


def struct(fields: dict[str, int]) -> np.generic:
    """A struct of int32 fields."""
    scalar: np.generic = np.array([tuple(fields.values())], [(name, np.int32) for name in fields])[0]
    return scalar
