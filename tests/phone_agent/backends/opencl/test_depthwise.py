"""Depthwise convolutions with other vector widths than the default of this device."""

from __future__ import annotations

import pytest

from phone_agent.backends.opencl.tiles import GPU, Tiles
from phone_agent.core.ops import Geometry, Kind
from tests.phone_agent.backends.opencl.on_device import planned, wrong_in
from tests.phone_agent.core import shapes
from tests.phone_agent.core.cases import CASES, _every

KINDS = [Kind.DEPTHWISE_FORWARD, Kind.DEPTHWISE_BACKWARD_DATA, Kind.DEPTHWISE_BACKWARD_WEIGHTS]
NARROW = Tiles(width=4, depthwise_pixels=3, depthwise_lines=3)


def _shape(size: tuple[int, int], channels: int, kernel: int, stride: int = 1, pad: int = 1) -> Geometry:
    return shapes.geometry(2, size, channels, channels, kernel, stride, pad, groups=channels)


SHAPES = [
    _shape((5, 7), 8, 3),
    _shape((7, 7), 12, 3, stride=2),
    _shape((6, 9), 13, 3),
    _shape((9, 8), 5, 5, stride=2, pad=2),
    shapes.geometry(2, (9, 9), 4, 4, 3, pad=2, dilation=2, groups=4),
    _shape((7, 5), 3, 3, stride=3),
]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_narrow_vectors_match_the_oracle(kind: Kind) -> None:
    wrong = [line for case in _every(kind, SHAPES) for line in wrong_in(case, NARROW)]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in KINDS])
def test_full_grid_matches_the_oracle(kind: Kind) -> None:
    wrong = [line for case in CASES[kind](full=True) if planned(case) for line in wrong_in(case, GPU)]
    assert not wrong, "\n".join(wrong[:20])
