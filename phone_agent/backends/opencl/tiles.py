"""Tile sizes: the tuning parameters of the kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phone_agent.backends.opencl.device import Limits
from phone_agent.nn.plan.ops import FLOAT


@dataclass(frozen=True)
class Tiles:
    """A work-item of a matrix product computes a tile of `rows` x `columns` vectors of `width` in registers.

    It computes up to `tiles` such tiles vertically and `sweep` horizontally, which share the inputs in local memory:
    `depth` numbers per row. A work-group has `group_rows` x `group_columns` work-items.
    """

    width: int = 4
    rows: int = 8
    columns: int = 1
    depth: int = 16
    tiles: int = 1
    sweep: int = 1
    group_rows: int = 8
    group_columns: int = 8
    gradient_rows: int = 8  # rows of a weight gradient tile
    gradient_depth: int = 16  # pixels loaded at a time
    gradient_pixels: int = 4096  # most pixels summed by one work-item; partial sums are added in a second pass
    items_per_unit: int = 4  # work-items to keep a compute unit busy: work is split until there are as many
    depthwise_pixels: int = 4  # depthwise: pixels of a row per work-item at a time
    depthwise_lines: int = (
        4  # depthwise: most rows per work-item; its neighbors, with other channels, read the same memory
    )

    def local_bytes(self, columns: int) -> int:
        """Local memory of the product that needs most, with tiles of `columns` columns."""
        product = self.group_rows * self.tiles * self.rows * (self.depth + GAP)
        gradient = self.gradient_depth * (
            self.group_rows * self.tiles * self.gradient_rows + self.group_columns * columns * self.width
        )
        return max(product, gradient) * FLOAT


GAP = 4  # floats between rows in local memory

CPU = Tiles(
    width=16,
    rows=12,
    columns=2,
    depth=256,
    tiles=8,
    sweep=8,
    group_rows=1,
    group_columns=1,
    gradient_depth=128,
    depthwise_pixels=8,
)
GPU = Tiles(items_per_unit=256)


def default_tiles(limits: Limits) -> Tiles:
    """Tiles for a device that has not been tuned."""
    if limits.kind == "cpu":
        return CPU
    return fit_tiles(GPU, limits)


def fit_tiles(tiles: Tiles, limits: Limits) -> Tiles:
    """Shrink the work-groups until the device can run them."""
    while (
        tiles.group_rows * tiles.group_columns > limits.work_group
        or tiles.local_bytes(tiles.columns) > limits.local_bytes
    ):
        if tiles.group_rows == tiles.group_columns == 1:
            return replace(tiles, depth=max(4, tiles.depth // 2), gradient_depth=max(4, tiles.gradient_depth // 2))
        halved = "group_rows" if tiles.group_rows >= tiles.group_columns else "group_columns"
        tiles = replace(tiles, **{halved: getattr(tiles, halved) // 2})
    return tiles
