"""Link rates, written as for `tc`, and the lower bound of an allreduce on them."""

from __future__ import annotations

import re

from orchestrator.errors import UsageError

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bytes_per_second(rate: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(kbit|mbit|gbit)", rate.strip().lower())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"invalid rate '{rate}'", remedy="write it as 1gbit, 100mbit or 2.5gbit")
    return float(match[1]) * _UNITS[match[2]] / 8


def allreduce_limit_s(phones: int, payload_bytes: int, rate: str) -> float:
    """Lower bound on links of `rate`: each of K phones sends and receives 2(K-1)/K of the payload."""
    return 2 * (phones - 1) / phones * payload_bytes / bytes_per_second(rate)
