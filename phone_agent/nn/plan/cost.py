"""Rough cost model of ops, before anything is measured: for comparing alternatives."""

from __future__ import annotations

from collections.abc import Iterable

from phone_agent.nn.plan.ops import OpSpec

_FLOPS_PER_S, _BYTES_PER_S = 100e9, 10e9  # of a phone, or of two desktop cores


def estimate_seconds(ops: Iterable[OpSpec]) -> float:
    return sum(op.flops / _FLOPS_PER_S + op.traffic / _BYTES_PER_S for op in ops)
