"""The numbers that kernels can be tuned by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phone_agent.backends.opencl.device import Limits
from phone_agent.nn.plan.ops import FLOAT


@dataclass(frozen=True)
class Tiles:
    """How work is cut. A work-item of a product computes `rows` times `columns` vectors of `width` in registers.

    It goes on with up to `tiles` such tiles downwards and `sweep` across, which share what was gathered: `depth`
    numbers a row, in local memory. A work-group is `group_rows` times `group_columns` items.
    """

    width: int = 4
    rows: int = 8
    columns: int = 1
    depth: int = 16
    tiles: int = 1
    sweep: int = 1
    group_rows: int = 8
    group_columns: int = 8
    gradient_rows: int = 8  # of a tile of weights' gradients
    gradient_depth: int = 16  # pixels gathered at a time
    gradient_pixels: int = 4096  # summed up by one item at most: the others' sums are added in a second pass
    items_a_unit: int = 4  # items that keep a compute unit busy: work is cut smaller until there are as many
    depthwise_pixels: int = 4  # of a line, at a time by one item of a depthwise convolution
    depthwise_lines: int = 4  # by one item at most: its neighbours, with other channels, look at the same memory

    def local_bytes(self, columns: int) -> int:
        """Local memory of the hungriest product, with tiles of so many columns."""
        product = self.group_rows * self.tiles * self.rows * (self.depth + GAP)
        gradient = self.gradient_depth * (
            self.group_rows * self.tiles * self.gradient_rows + self.group_columns * columns * self.width
        )
        return max(product, gradient) * FLOAT


GAP = 4  # floats between gathered rows

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
GPU = Tiles(items_a_unit=256)


def default_tiles(limits: Limits) -> Tiles:
    """For a device nobody has measured yet."""
    if limits.kind == "cpu":
        return CPU
    return fit_tiles(GPU, limits)


def fit_tiles(tiles: Tiles, limits: Limits) -> Tiles:
    """The same with groups that the device can run."""
    while (
        tiles.group_rows * tiles.group_columns > limits.work_group
        or tiles.local_bytes(tiles.columns) > limits.local_bytes
    ):
        if tiles.group_rows == tiles.group_columns == 1:
            return replace(tiles, depth=max(4, tiles.depth // 2), gradient_depth=max(4, tiles.gradient_depth // 2))
        halved = "group_rows" if tiles.group_rows >= tiles.group_columns else "group_columns"
        tiles = replace(tiles, **{halved: getattr(tiles, halved) // 2})
    return tiles
