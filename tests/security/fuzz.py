"""How many inputs a promise is tried with, and how many it was.

`make fuzz` multiplies the numbers (CLUSTERCTL_FUZZ); the sum stands at the end of a test run.
"""

from __future__ import annotations

import os
from collections import Counter

from hypothesis import HealthCheck, settings

TRIED: Counter[str] = Counter()  # inputs, by promise
_MORE = int(os.environ.get("CLUSTERCTL_FUZZ", "1"))


def fuzzed(inputs: int) -> settings:
    """As a decorator under `given`: that many inputs, or as many times that as `make fuzz` asks for."""
    ignored = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=inputs * _MORE, deadline=None, suppress_health_check=ignored)


def tried(promise: str, inputs: int = 1) -> None:
    TRIED[promise] += inputs
