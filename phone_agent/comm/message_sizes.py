"""What a step has to sum, as messages: how long each is on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from phone_agent.comm.wire import WIRES
from phone_agent.contract.sizes import FLOAT
from phone_agent.nn.plan.buckets import LAST_PART


class Load(Protocol):
    """Bytes of each allreduce, where gradients are handed over in parts of `bucket_bytes`."""

    def messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """Of a step, one after the other."""
        ...

    def of_a_part(self, wire: str, bucket_bytes: int) -> Sequence[float]: ...

    def of_the_last(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """Of the part that is ready last, and needed first."""
        ...


@dataclass(frozen=True)
class Numbers:
    """So many gradients, which can be cut anywhere."""

    count: int

    def messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        pieces = max(1, round(self.count * FLOAT / bucket_bytes))
        return [WIRES[wire].size(self.count) / pieces] * pieces

    def of_a_part(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRES[wire].size(self._part(bucket_bytes))]

    def of_the_last(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRES[wire].size(self._part(bucket_bytes) // LAST_PART)]

    def _part(self, bucket_bytes: int) -> int:
        return min(self.count, bucket_bytes // FLOAT)
