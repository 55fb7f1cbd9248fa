"""Which algorithm computes a convolution, in each direction."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.core.ops import Algorithm, Kind
from phone_agent.nn.backends import Options

Choose = Callable[[Kind, dict[str, int]], Algorithm]


def chooser(options: Options) -> Choose:
    return direct if not options.winograd else direct


def direct(_kind: Kind, _shape: dict[str, int]) -> Algorithm:
    return Algorithm.DIRECT
