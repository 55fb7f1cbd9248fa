"""How good the network is on samples it never saw: each is judged once, by one phone; damaged ones are left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.schema import RunSpec
from phone_agent.data import Dataset
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State

TOP = 5
TELL_EVERY_S = 20.0  # a run of which nothing is heard for minutes is taken for one that hangs
MEAN, VARIANCE = ".running_mean", ".running_var"
FIELDS = ("loss", "top1", "top5", "samples")


class Normalizer(Protocol):
    """StoredDataset images as the network reads them, `batch` at once."""

    @property
    def batch(self) -> int: ...

    def normalize(self, images: NDArray[np.uint8]) -> NDArray[np.float32]: ...


Row = NDArray[np.float64]  # sums over the samples judged, in the order of FIELDS


def due(spec: RunSpec, step: int) -> bool:
    return step == spec.steps or bool(spec.eval_every and step % spec.eval_every == 0)


def combine_statistics(state: State, share: float, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
    """Each phone's normalisations saw only its own batches; all are judged by what they saw together.

    `share` is of the global batch. Means are averaged by it; so are variances, and to these is added how far the
    phones' means are apart: the variance of all the images, not the mean of the phones'.
    """
    if not state.statistics.size:
        return
    own, apart = state.statistics.copy(), np.zeros_like(state.statistics)
    state.statistics *= np.float32(share)
    allreduce(state.statistics)
    views, own_views, apart_views = map(state.statistics_packing.views, (state.statistics, own, apart))
    for name in views:
        if name.endswith(MEAN):
            variance = name.removesuffix(MEAN) + VARIANCE
            apart_views[variance][...] = np.float32(share) * (own_views[name] - views[name]) ** 2
    allreduce(apart)
    state.statistics += apart


@contextmanager
def combined_statistics(state: State, share: float, allreduce: Callable[[NDArray[np.float32]], None]) -> Iterator[None]:
    """For as long as it takes to judge or to save; training goes on with its own, as if nobody had looked."""
    own = state.statistics.copy()
    combine_statistics(state, share, allreduce)
    try:
        yield
    finally:
        state.statistics[...] = own


def own_part(samples: int, rank: int, ranks: int) -> range:
    """The samples this rank judges; none where there are more ranks than samples."""
    return range(samples * rank // ranks, samples * (rank + 1) // ranks)


def judge(
    executable: Executable,
    test: Dataset,
    part: range,
    trained_with: Normalizer,
    tell: Callable[[int], None] = lambda _done: None,
) -> Row:
    """Images are normalised as those trained on were, and as many at once: no more memory than training. Where it takes
    long, `tell` hears now and then how many are judged.

    The last batch is filled up with samples judged before: of a smaller one the executable would need a copy.
    """
    row, told = np.zeros(len(FIELDS)), time.monotonic()
    for start in range(0, len(part), trained_with.batch):
        places = part.start + np.arange(start, start + trained_with.batch) % len(part)
        images, labels = test.take(places)
        scores = executable.forward(trained_with.normalize(images))
        count = min(trained_with.batch, len(part) - start)
        whole = ~np.isin(places[:count], list(test.damaged))
        row += mark(scores[:count][whole], labels[:count][whole])
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            tell(start + count)
    return row


def mark(scores: NDArray[Any], labels: NDArray[Any]) -> Row:
    """Of equal scores the first class's comes first, as argmax has it."""
    scores = scores.astype(np.float64)
    own = scores[np.arange(len(scores)), labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    place = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    highest = scores.max(axis=1, keepdims=True)
    loss = np.log(np.exp(scores - highest).sum(axis=1, keepdims=True)) + highest - own
    return np.array([loss.sum(), (place < 1).sum(), (place < TOP).sum(), len(scores)], np.float64)


def merge(rows: Row) -> dict[str, float] | None:
    """What all phones' rows say together; nothing without samples."""
    total = rows.reshape(-1, len(FIELDS)).sum(axis=0)
    return {**means(total), "samples": round(total[-1])} if total[-1] else None


def means(row: Row) -> dict[str, float]:
    *sums, samples = row.tolist()
    if not math.isfinite(sums[0]):
        raise AgentError("the network's scores are not numbers: lower the learning rate", code=ErrorCode.DIVERGED)
    return dict(zip(FIELDS, (each / samples for each in sums), strict=False))
