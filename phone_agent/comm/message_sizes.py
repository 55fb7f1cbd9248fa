"""Message sizes: how many bytes each allreduce of a step puts on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from phone_agent.comm.wire import WIRES
from phone_agent.contract.sizes import FLOAT
from phone_agent.nn.plan.buckets import LAST_BUCKET_DIVISOR


class MessageSizes(Protocol):
    """Bytes of each allreduce, where gradients are reduced in buckets of `bucket_bytes`."""

    def step_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """All messages of a step, in order."""
        ...

    def bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """The messages of one full bucket."""
        ...

    def last_bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        """The messages of the bucket that backward completes last and forward needs first."""
        ...


@dataclass(frozen=True)
class DenseMessageSizes:
    """`count` gradients that can be split anywhere."""

    count: int

    def step_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        buckets = max(1, round(self.count * FLOAT / bucket_bytes))
        return [WIRES[wire].size(self.count) / buckets] * buckets

    def bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRES[wire].size(self._bucket(bucket_bytes))]

    def last_bucket_messages(self, wire: str, bucket_bytes: int) -> Sequence[float]:
        return [WIRES[wire].size(self._bucket(bucket_bytes) // LAST_BUCKET_DIVISOR)]

    def _bucket(self, bucket_bytes: int) -> int:
        return min(self.count, bucket_bytes // FLOAT)
