"""The order in which gradient chunks are reduced. Pure.

Backward completes the last layers first, but the next forward needs the first layers first. If chunks were reduced in
order of completion, forward could not start before all of them had arrived. So a chunk that is needed earlier overtakes
those still waiting. All ranks must reduce chunks in the same order, whatever is ready on each; the order is therefore
computed once, from timings that all ranks have exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phone_agent.contract.sizes import FLOAT


@dataclass(frozen=True)
class Chunk:
    """A part of a bucket that is reduced at once. `last`: it completes its bucket."""

    number: int
    bucket: int
    span: slice
    last: bool


def split_buckets(buckets: Sequence[slice], chunk_bytes: int) -> list[Chunk]:
    """Buckets in order, large ones split evenly, so that an urgent chunk never waits for a whole large bucket."""
    chunks: list[Chunk] = []
    for bucket, span in enumerate(buckets):
        length = span.stop - span.start
        count = max(1, round(length * FLOAT / chunk_bytes))
        borders = [span.start + length * index // count for index in range(count + 1)]
        chunks += [
            Chunk(number, bucket, slice(low, high), last=high == span.stop)
            for number, (low, high) in enumerate(pairwise(borders), start=len(chunks))
        ]
    return chunks


@dataclass(frozen=True)
class BucketTimes:
    """`ready` and `needed`: seconds of computing since the step began, by bucket. `reduce_s`: seconds per chunk."""

    ready: Sequence[float]
    needed: Sequence[float]
    reduce_s: Sequence[float]


def order_chunks(chunks: Sequence[Chunk], times: BucketTimes) -> list[Chunk]:
    """Whenever the network is free, reduce the ready chunk that the next forward needs first."""
    waiting = list(chunks)
    order: list[Chunk] = []
    now = 0.0
    while waiting:
        ready = [chunk for chunk in waiting if times.ready[chunk.bucket] <= now]
        if not ready:
            now = min(times.ready[chunk.bucket] for chunk in waiting)
            continue
        urgent = min(ready, key=lambda chunk: (times.needed[chunk.bucket], chunk.number))
        waiting.remove(urgent)
        order.append(urgent)
        now += times.reduce_s[urgent.number]
    return order
