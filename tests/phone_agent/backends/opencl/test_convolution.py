"""Matrix products with other tiles than the defaults of this device, and the geometry behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phone_agent.backends.opencl.device import find_device
from phone_agent.backends.opencl.launches.products import Axis, backward_axis, forward_axis
from phone_agent.backends.opencl.tiles import CPU, GPU, Tiles, default_tiles, fit_tiles
from phone_agent.core.ops import Kind
from tests.phone_agent.backends.opencl.on_device import planned, run, wrong_in
from tests.phone_agent.core import shapes
from tests.phone_agent.core.cases import CASES, _every

KINDS = [Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS]
# Work-groups of several items, each with several tiles in both directions, and less depth than most products.
GROUPED = Tiles(
    width=4, rows=3, columns=2, depth=8, tiles=2, sweep=2, group_rows=2, group_columns=3,
    gradient_rows=3, gradient_depth=8, gradient_pixels=40,
)  # fmt: skip

# Every shape has tails. All use the same definitions, since compiling takes longer than running.
SHAPES = [
    shapes.geometry(3, (5, 7), 13, 11, 3, pad=1),
    shapes.geometry(2, (9, 6), 5, 17, 3, stride=2, pad=1),
    shapes.geometry(1, (11, 10), 7, 9, 3, pad=2, dilation=2),
    shapes.geometry(2, (7, 7), 15, 18, 3, stride=3, pad=1, groups=3),
    shapes.geometry(1, (8, 9), 5, 31, 5, stride=2, pad=2),
    shapes.geometry(2, (6, 5), 37, 41, 1, stride=2),
    shapes.geometry(19, (1, 1), 53, 67, 1),
]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_grouped_tiles_match_the_oracle(kind: Kind) -> None:
    wrong = [line for case in _every(kind, SHAPES) for line in wrong_in(case, GROUPED)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [pytest.param(GPU, id="gpu"), pytest.param(GROUPED, id="grouped")])
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_full_grid_matches_the_oracle(kind: Kind, tiles: Tiles) -> None:
    wrong = [line for case in CASES[kind](full=True) if planned(case) for line in wrong_in(case, tiles)]
    assert not wrong, "\n".join(wrong[:20])


def test_weight_gradients_are_deterministic() -> None:
    case = next(iter(_every(Kind.CONV_BACKWARD_WEIGHTS, [shapes.geometry(4, (9, 9), 6, 10, 3, pad=1)])))
    first, second = (run(case, GROUPED)[0] for _ in range(2))
    for wanted in case.wanted:
        assert np.array_equal(first[id(wanted.memory)], second[id(wanted.memory)], equal_nan=True)


def _pairs(axis: Axis) -> set[tuple[int, int, int]]:
    """(target pixel, kernel tap, source pixel), all inside their images."""
    found = [
        (axis.to_first + j * axis.to_step, axis.first + t * axis.step, j * axis.stride + axis.offset + t * axis.spacing)
        for j in range(axis.grid)
        for t in range(axis.taps)
    ]
    assert len(found) == len(set(found))
    return {pair for pair in found if 0 <= pair[2] < axis.size}


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_backward_phases_cover_forward(kernel: int, dilation: int, stride: int) -> None:
    """Every pair of pixel and tap is in exactly one phase of backward."""
    reach = (kernel - 1) * dilation
    for size in range(reach + 1, reach + 9):
        g = {"stride": stride, "dilation": dilation, "in_h": size, "kernel_h": kernel, "pad_h": reach // 2}
        g["out_h"] = (size + 2 * g["pad_h"] - reach - 1) // stride + 1
        forward = {(read, tap, out) for out, tap, read in _pairs(forward_axis(g, "h"))}
        phases = [_pairs(backward_axis(g, "h", phase)) for phase in range(stride)]
        assert sum(map(len, phases)) == len(forward)
        assert set().union(*phases) == forward


def test_tiles_fit_the_device() -> None:
    limits = find_device().limits
    assert default_tiles(replace(limits, kind="cpu")) == CPU
    adreno = replace(limits, kind="gpu", work_group=1024, local_bytes=32 * 1024)
    assert default_tiles(adreno) == GPU
    small = replace(adreno, work_group=16, local_bytes=4096)
    made = fit_tiles(GPU, small)
    assert made.group_rows * made.group_columns <= 16
    assert made.local_bytes(made.columns) <= 4096
