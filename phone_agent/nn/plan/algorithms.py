"""Which algorithm computes a convolution, in each direction."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.core.ops import Algorithm, Kind
from phone_agent.nn.plan import winograd
from phone_agent.nn.plan.options import Options

CONVOLUTIONS = {Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS}  # not those by channel

Choose = Callable[[Kind, dict[str, int]], Algorithm]


def chooser(options: Options) -> Choose:
    return _cheapest if options.winograd else direct


def _cheapest(kind: Kind, shape: dict[str, int]) -> Algorithm:
    return winograd.choose(kind, shape) if kind in CONVOLUTIONS else Algorithm.DIRECT


def direct(_kind: Kind, _shape: dict[str, int]) -> Algorithm:
    return Algorithm.DIRECT
