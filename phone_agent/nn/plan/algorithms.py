"""Convolution algorithm selection, for each direction."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.core.ops import Algorithm, Kind
from phone_agent.nn.plan import winograd
from phone_agent.nn.plan.options import Options

CONV_KINDS = {Kind.CONV_FORWARD, Kind.CONV_BACKWARD_DATA, Kind.CONV_BACKWARD_WEIGHTS}  # not depthwise

AlgorithmSelector = Callable[[Kind, dict[str, int]], Algorithm]


def algorithm_selector(options: Options) -> AlgorithmSelector:
    return _select_cheapest if options.winograd else select_direct


def _select_cheapest(kind: Kind, shape: dict[str, int]) -> Algorithm:
    return winograd.select_algorithm(kind, shape) if kind in CONV_KINDS else Algorithm.DIRECT


def select_direct(_kind: Kind, _shape: dict[str, int]) -> Algorithm:
    return Algorithm.DIRECT
