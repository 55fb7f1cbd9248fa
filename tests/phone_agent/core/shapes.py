"""The shapes that kernels are tested on: hand-written where bugs are likely, and random ones.

A grid is either small (seconds; always run) or full (minutes; by `make test-slow`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from phone_agent.core.ops import Geometry

Side = int | tuple[int, int]


def _sides(value: Side) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def geometry(
    batch: int,
    size: Side,
    channels: int,
    filters: int,
    kernel: Side,
    stride: int = 1,
    pad: Side = 0,
    dilation: int = 1,
    groups: int = 1,
    *,
    ceil: bool = False,
) -> Geometry:
    sides = zip(_sides(size), _sides(kernel), _sides(pad), strict=True)
    out = [_windows(length, (reach - 1) * dilation + 1, stride, room, ceil=ceil) for length, reach, room in sides]
    return Geometry(
        batch, *_sides(size), channels, *out, filters, *_sides(kernel), stride, *_sides(pad), dilation, groups
    )


def _windows(length: int, reach: int, stride: int, pad: int, *, ceil: bool) -> int:
    room = length + 2 * pad - reach
    count = room // stride + 1
    if ceil and room % stride and count * stride < length + pad:  # the last window must start inside the image
        count += 1
    return count


def name(g: Geometry) -> str:
    text = f"{g.batch}x{g.in_h}x{g.in_w}x{g.in_c}-{g.out_c}k{g.kernel_h}x{g.kernel_w}"
    parts = {"s": g.stride, "d": g.dilation, "g": g.groups}
    text += "".join(f"{letter}{value}" for letter, value in parts.items() if value != 1)
    return text + (f"p{g.pad_h}x{g.pad_w}" if g.pad_h or g.pad_w else "")


def convolutions(*, full: bool) -> list[Geometry]:
    small = [
        geometry(1, 1, 1, 1, 1),
        geometry(1, 1, 5, 3, 1),  # fully connected, one image
        geometry(7, 1, 33, 10, 1),
        geometry(2, 1, 256, 100, 1),
        geometry(3, 1, 300, 17, 1),
        geometry(1, 5, 3, 16, 3, pad=1),
        geometry(2, (7, 5), 3, 24, 3, stride=2, pad=1),
        geometry(1, 13, 3, 33, 7, stride=2, pad=3),
        geometry(1, 23, 3, 20, 11, stride=4, pad=2),
        geometry(1, (11, 9), 16, 64, 1),
        geometry(3, 9, 64, 17, 1, stride=2),
        geometry(2, 7, 100, 48, 1),
        geometry(1, 8, 24, 24, 3, pad=1),
        geometry(2, 7, 33, 65, 3, pad=1),
        geometry(1, 14, 64, 64, 3, pad=1),
        geometry(1, 9, 16, 32, 3),
        geometry(1, (9, 11), 17, 19, (1, 7), pad=(0, 3)),
        geometry(1, (11, 9), 16, 31, (7, 1), pad=(3, 0)),
        geometry(1, (10, 12), 8, 8, (2, 3), pad=(1, 2)),
        geometry(1, 6, 5, 7, 1, pad=3),  # padding larger than the kernel: some windows are entirely outside
        geometry(1, 5, 4, 6, 3, stride=3, pad=4),
        geometry(1, 13, 16, 16, 3, pad=2, dilation=2),
        geometry(1, (12, 17), 6, 10, 3, stride=2, pad=3, dilation=3),
        geometry(1, 10, 6, 10, 5, stride=3, pad=2),
        geometry(1, 4, 8, 8, 3, stride=5, pad=1),  # most pixels are in no window
        geometry(2, 9, 12, 18, 3, pad=1, groups=2),
        geometry(1, 7, 15, 25, 3, stride=2, pad=1, groups=5),
        geometry(1, 6, 34, 66, 1, groups=2),
        geometry(1, 5, 6, 12, 3, pad=1, groups=6),  # two filters per channel
    ]
    return small + ([*_networks(), *_random_convolutions(60)] if full else [])


def _networks() -> list[Geometry]:
    """Layers of the supported networks."""
    return [
        geometry(2, 56, 64, 64, 3, pad=1),
        geometry(1, 28, 128, 128, 3, pad=1),
        geometry(2, 14, 256, 256, 3, pad=1),
        geometry(2, 7, 512, 512, 3, pad=1),
        geometry(1, 56, 64, 256, 1),
        geometry(1, 28, 512, 1024, 1, stride=2),
        geometry(1, 112, 3, 64, 7, stride=2, pad=3),
        geometry(1, 57, 64, 192, 5, pad=2, groups=2),
        geometry(1, 17, 160, 192, (1, 7), pad=(0, 3)),
        geometry(1, 35, 48, 64, 5, pad=2),
        geometry(4, 1, 2048, 1000, 1),
        geometry(2, 1, 4096, 1003, 1),
        geometry(67, 1, 129, 257, 1),
    ]


def _random_convolutions(count: int) -> Iterator[Geometry]:
    draw = np.random.default_rng(3)
    channels = [1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 100]
    while count:
        groups = int(draw.choice([1, 1, 1, 2, 3]))
        try_it = geometry(
            int(draw.integers(1, 4)),
            (int(draw.integers(1, 24)), int(draw.integers(1, 24))),
            int(draw.choice(channels)) * groups,
            int(draw.choice(channels)) * groups,
            (int(draw.integers(1, 6)), int(draw.integers(1, 6))),
            stride=int(draw.integers(1, 4)),
            pad=(int(draw.integers(0, 4)), int(draw.integers(0, 4))),
            dilation=int(draw.choice([1, 1, 2, 3])),
            groups=groups,
        )
        if try_it.out_h > 0 and try_it.out_w > 0:
            count -= 1
            yield try_it


def winograd(*, full: bool) -> list[Geometry]:
    small = [
        geometry(1, 4, 16, 16, 3, pad=1),
        geometry(1, 1, 8, 8, 3, pad=1),  # smaller than a tile
        geometry(2, (3, 5), 3, 7, 3, pad=1),
        geometry(1, 7, 33, 17, 3, pad=1),
        geometry(2, 14, 24, 40, 3, pad=1),
        geometry(1, (13, 9), 64, 65, 3, pad=1),
        geometry(1, (6, 11), 5, 100, 3),
        geometry(1, 10, 16, 16, 3, pad=2),
    ]
    more = [
        geometry(2, 56, 64, 64, 3, pad=1),
        geometry(1, 28, 128, 128, 3, pad=1),
        geometry(1, 14, 256, 256, 3, pad=1),
        geometry(3, 7, 512, 512, 3, pad=1),
        geometry(1, 27, 48, 64, 3, pad=1),
        geometry(1, (19, 23), 37, 41, 3, pad=1),
    ]
    return small + (more if full else [])


def depthwise(*, full: bool) -> list[Geometry]:
    def of(batch: int, size: Side, channels: int, kernel: Side, stride: int, pad: Side, dilation: int = 1) -> Geometry:
        return geometry(batch, size, channels, channels, kernel, stride, pad, dilation, channels)

    small = [
        of(1, 1, 2, 1, 1, 0),
        of(1, 3, 5, 3, 1, 1),
        of(2, 7, 16, 3, 1, 1),
        of(1, (9, 6), 17, 3, 2, 1),
        of(2, 8, 33, 3, 2, 1),
        of(1, 14, 64, 3, 1, 1),
        of(1, (13, 11), 100, 3, 2, 1),
        of(3, 5, 24, 3, 1, 0),
        of(1, 11, 40, 5, 1, 2),
        of(1, 10, 9, 5, 2, 2),
        of(1, (9, 12), 20, (1, 7), 1, (0, 3)),
        of(1, 12, 16, 3, 1, 2, 2),
        of(1, 4, 31, 3, 3, 3),
        of(1, 2, 48, 7, 1, 3),  # most taps are outside the image
    ]
    more = [
        of(2, 112, 32, 3, 1, 1),
        of(1, 113, 64, 3, 2, 1),
        of(2, 28, 256, 3, 1, 1),
        of(2, 14, 512, 3, 1, 1),
        of(2, 7, 1024, 3, 1, 1),
        of(1, 56, 144, 3, 2, 1),
        of(3, 15, 97, 3, 1, 1),
        of(1, 30, 19, 9, 2, 4),
    ]
    return small + (more if full else [])


def pools(*, full: bool) -> list[Geometry]:
    def of(
        batch: int, size: Side, channels: int, kernel: Side, stride: int, pad: Side = 0, *, ceil: bool = False
    ) -> Geometry:
        return geometry(batch, size, channels, channels, kernel, stride, pad, ceil=ceil)

    small = [
        of(1, 1, 1, 1, 1),
        of(2, 4, 5, 2, 2),
        of(1, 7, 16, 3, 2, 1),
        of(2, 8, 33, 3, 2, ceil=True),
        of(1, (9, 6), 17, 3, 1, 1),
        of(1, 13, 64, 3, 2),
        of(2, 7, 100, 7, 7),  # the whole image
        of(1, (5, 8), 24, (2, 3), 2, (1, 1), ceil=True),
        of(1, 11, 7, 5, 3, 2),
        of(1, 6, 40, 2, 3),  # pixels in no window
        of(1, 15, 3, 15, 1, 7),
    ]
    more = [
        of(2, 112, 64, 3, 2, 1),
        of(1, 55, 96, 3, 2),
        of(2, 28, 480, 3, 2, ceil=True),
        of(1, 14, 512, 3, 1, 1),
        of(2, 7, 2048, 7, 1),
        of(1, 35, 288, 3, 1, 1),
    ]
    return small + (more if full else [])


def matrices(*, full: bool) -> list[tuple[int, int]]:
    """Rows and channels, for ops without a geometry."""
    small = [(1, 1), (1, 5), (3, 16), (7, 17), (50, 33), (49, 64), (13, 100), (130, 3), (257, 24), (2, 1000)]
    return small + ([(6272, 64), (12544, 32), (98, 2048), (4099, 19), (1, 4096)] if full else [])


def lengths(*, full: bool) -> list[int]:
    small = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000, 4099]
    return small + ([70001, 1 << 20] if full else [])
