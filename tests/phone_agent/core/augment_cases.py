"""Cases for augmentation: crops, resizing and color transforms."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.ops import Kind
from tests.phone_agent.core import oracle
from tests.phone_agent.core.memory import Case, block, struct, written_rows

Size = tuple[int, int]

# Batch, input size, output size, channels, and whether crops are resized.
AUGMENTS: list[tuple[int, Size, Size, int, bool]] = [
    (1, (1, 1), (1, 1), 1, False),
    (2, (5, 7), (5, 7), 3, False),
    (3, (32, 32), (32, 32), 3, False),
    (2, (9, 6), (7, 4), 1, False),
    (1, (4, 4), (9, 10), 5, False),
    (2, (12, 10), (7, 6), 3, True),
    (3, (5, 4), (11, 13), 3, True),
    (2, (8, 9), (3, 5), 1, True),
]
MORE_AUGMENTS: list[tuple[int, Size, Size, int, bool]] = [
    (2, (40, 33), (28, 28), 3, False),
    (1, (11, 13), (5, 6), 17, False),
    (2, (64, 48), (28, 37), 3, True),
    (1, (2, 3), (9, 9), 4, True),
]
PLAIN = 2e-6
RESIZED = 2e-5  # source positions are computed in float32


def _floats(draw: np.random.Generator, *shape: int) -> NDArray[Any]:
    """Rounded to float32, so that oracle and core start from the same values."""
    return draw.standard_normal(shape).astype(np.float32).astype(np.float64)


def augments(*, full: bool) -> Iterator[Case]:
    for batch, size, into, channels, resized in AUGMENTS + (MORE_AUGMENTS if full else []):
        for colored in (False, True) if channels == 3 else (False,):
            yield _augment(batch, size, into, channels, resized=resized, colored=colored)


def _augment(
    batch: int, size: tuple[int, int], into: tuple[int, int], channels: int, *, resized: bool, colored: bool
) -> Case:
    name = f"{batch}x{size[0]}x{size[1]}x{channels} to {into[0]}x{into[1]} {resized=} {colored=}"
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    images = draw.integers(0, 256, (batch, *size, channels))
    views = np.zeros((batch, 6), np.int32)
    views[:, 4] = draw.integers(0, 2, batch)
    if resized:
        for axis in (0, 1):
            views[:, 2 + axis] = draw.integers(1, size[axis] + 1, batch)
            views[:, axis] = draw.integers(0, 1000, batch) % (size[axis] - views[:, 2 + axis] + 1)
    else:
        views[:, :2], views[:, 2:4] = draw.integers(-4, 5, (batch, 2)), into
    colors = _floats(draw, batch, 3, 4) if colored else None
    mean, inv_std = _floats(draw, channels), np.abs(_floats(draw, channels)) + 0.5
    out = oracle.augment(images, views, into, colors, mean, inv_std)
    wanted = written_rows("out", None, out, channels, RESIZED if resized else PLAIN)
    fields = {} if colors is None else {"color_matrices": block("color_matrices", colors)}
    op = struct(
        ops.Augment, images=block("images", images, np.uint8), crops=block("crops", views, np.int32),
        mean=block("mean", mean), inv_std=block("inv_std", inv_std), out=wanted.memory, batch=batch, in_h=size[0],
        in_w=size[1], out_h=into[0], out_w=into[1], channels=channels, **fields,
    )  # fmt: skip
    return Case(name, Kind.AUGMENT, op, (wanted,))
