"""Batch statistics from every kernel that computes them, with a mean that is large compared with the spread.

They are held against those of what the kernel itself has written: how exact its products are is another matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from phone_agent.core import ops
from phone_agent.core.library import isas, library
from phone_agent.core.ops import Algorithm, Kind
from tests.phone_agent.core import host, oracle, shapes
from tests.phone_agent.core.guarded import Guard
from tests.phone_agent.core.memory import Case, Memory, block, read_rows, struct
from tests.phone_agent.core.operands import ELEMENTWISE, Norm
from tests.phone_agent.core.random_data import RandomData

Array = NDArray[Any]
OFFSET, SPREAD = 100.0, 0.1
CHANNELS = 37  # whole vectors and a tail on every instruction set

CONVOLUTIONS = {
    "1x1": (Kind.CONV_FORWARD, Algorithm.DIRECT, shapes.geometry(2, 28, 8, CHANNELS, 1)),
    "1x1, wide": (Kind.CONV_FORWARD, Algorithm.DIRECT, shapes.geometry(2, 28, 8, 8 * CHANNELS, 1)),
    "direct": (Kind.CONV_FORWARD, Algorithm.DIRECT, shapes.geometry(2, 28, 8, CHANNELS, 3)),
    "winograd 2": (Kind.CONV_FORWARD, Algorithm.WINOGRAD2, shapes.geometry(2, 28, 8, CHANNELS, 3)),
    "winograd 4": (Kind.CONV_FORWARD, Algorithm.WINOGRAD4, shapes.geometry(2, 28, 8, CHANNELS, 3)),
    "depthwise": (
        Kind.DEPTHWISE_FORWARD,
        Algorithm.DIRECT,
        shapes.geometry(2, 28, CHANNELS, CHANNELS, 3, groups=CHANNELS),
    ),
}


def _far_from_zero(draw: RandomData, *shape: int) -> Array:
    return OFFSET + SPREAD * draw.normal(*shape)


def _convolution(name: str) -> tuple[Case, Norm, Memory]:
    kind, algorithm, g = CONVOLUTIONS[name]
    draw = RandomData(name)
    norm = Norm(draw, g.out_c, known=False)
    x = read_rows("x", _far_from_zero(draw, g.batch, g.in_h, g.in_w, g.in_c), g.in_c)
    weights = draw.positive(g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c)
    y = Memory("y", np.full(g.batch * g.out_h * g.out_w * g.out_c, np.nan, np.float32))
    op = struct(
        ops.ConvForward, g=Memory("geometry", np.frombuffer(bytes(g), np.uint8)),
        x=struct(ops.FusedInput, data=x, ld=g.in_c), weights=block("weights", weights / weights.sum(axis=(0, 1, 2))),
        y=y, ld_y=g.out_c, norm=norm.memory, algorithm=algorithm,
    )  # fmt: skip
    return Case(name, kind, op, ()), norm, y


def _pass() -> tuple[Case, Norm, Memory]:
    draw, rows = RandomData("pass"), 1000
    norm = Norm(draw, CHANNELS, known=False)
    z = read_rows("z", _far_from_zero(draw, rows, CHANNELS), CHANNELS)
    op = struct(ops.BatchNormForward, norm=norm.memory, z=z, rows=rows, ld_z=CHANNELS)
    return Case("pass", Kind.BATCH_NORM_FORWARD, op, ()), norm, z


@pytest.mark.parametrize("isa", isas(library()))
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", [*CONVOLUTIONS, "pass"])
def test_statistics_far_from_zero(name: str, threads: int, isa: str) -> None:
    case, norm, z = _convolution(name) if name in CONVOLUTIONS else _pass()
    after = host.run(case, isa, threads, Guard.BEHIND)
    values = after[id(z)].reshape(-1, norm.channels).astype(np.float64)
    mean, inv_std, _ = oracle.statistics(values, norm.EPSILON)
    np.testing.assert_allclose(after[id(norm.part("mean"))], mean, rtol=1e-7)
    np.testing.assert_allclose(after[id(norm.part("inv_std"))], inv_std, rtol=ELEMENTWISE)
