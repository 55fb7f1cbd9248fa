"""What computing takes, roughly, before anything is measured: to weigh one thing against another."""

from __future__ import annotations

from collections.abc import Iterable

from phone_agent.nn.plan.ops import OpSpec

_FLOPS, _BYTES = 100e9, 10e9  # a second, of a phone or of two cores


def estimate_seconds(steps: Iterable[OpSpec]) -> float:
    return sum(step.flops / _FLOPS + step.traffic / _BYTES for step in steps)
