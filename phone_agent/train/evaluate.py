"""Evaluation on held-out samples. Each is evaluated once, by one phone; damaged ones are skipped."""

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
PROGRESS_EVERY_S = 20.0  # a run that reports nothing for minutes is considered hung
MEAN, VARIANCE = ".running_mean", ".running_var"
FIELDS = ("loss", "top1", "top5", "samples")


class Normalizer(Protocol):
    """Turns stored images into network input, `batch` at a time."""

    @property
    def batch(self) -> int: ...

    def normalize(self, images: NDArray[np.uint8]) -> NDArray[np.float32]: ...


MetricSums = NDArray[np.float64]  # sums over samples, in the order of FIELDS


def is_due(spec: RunSpec, step: int) -> bool:
    return step == spec.steps or bool(spec.eval_every and step % spec.eval_every == 0)


def combine_statistics(state: State, fraction: float, allreduce: Callable[[NDArray[np.float32]], None]) -> None:
    """Combine the running statistics of batch normalization, which on each phone cover only its own batches.

    `fraction`: this phone's part of the global batch. Means are averaged by it. So are variances, plus the variance
    between the phones' means: the result is the variance over all images, not the mean of the phones' variances.
    """
    if not state.statistics.size:
        return
    own, between = state.statistics.copy(), np.zeros_like(state.statistics)
    state.statistics *= np.float32(fraction)
    allreduce(state.statistics)
    views, own_views, between_views = map(state.statistics_packing.views, (state.statistics, own, between))
    for name in views:
        if name.endswith(MEAN):
            variance = name.removesuffix(MEAN) + VARIANCE
            between_views[variance][...] = np.float32(fraction) * (own_views[name] - views[name]) ** 2
    allreduce(between)
    state.statistics += between


@contextmanager
def combined_statistics(
    state: State, fraction: float, allreduce: Callable[[NDArray[np.float32]], None]
) -> Iterator[None]:
    """Combined statistics during evaluation or a checkpoint; afterwards training continues with its own."""
    own = state.statistics.copy()
    combine_statistics(state, fraction, allreduce)
    try:
        yield
    finally:
        state.statistics[...] = own


def own_samples(samples: int, rank: int, ranks: int) -> range:
    """The samples that this rank evaluates; may be none if there are more ranks than samples."""
    return range(samples * rank // ranks, samples * (rank + 1) // ranks)


def evaluate_samples(
    executable: Executable,
    test: Dataset,
    samples: range,
    normalizer: Normalizer,
    report_progress: Callable[[int], None] = lambda _done: None,
) -> MetricSums:
    """Metric sums over these samples, normalized as in training and in batches of the same size, so that it takes no
    more memory. `report_progress` is called now and then with the number of samples done.

    The last batch is padded with samples evaluated before, because a smaller batch would have to be compiled.
    """
    sums, reported = np.zeros(len(FIELDS)), time.monotonic()
    for start in range(0, len(samples), normalizer.batch):
        places = samples.start + np.arange(start, start + normalizer.batch) % len(samples)
        images, labels = test.take(places)
        scores = executable.forward(normalizer.normalize(images))
        count = min(normalizer.batch, len(samples) - start)
        intact = ~np.isin(places[:count], list(test.damaged))
        sums += metric_sums(scores[:count][intact], labels[:count][intact])
        if time.monotonic() - reported >= PROGRESS_EVERY_S:
            reported = time.monotonic()
            report_progress(start + count)
    return sums


def metric_sums(scores: NDArray[Any], labels: NDArray[Any]) -> MetricSums:
    """Ties are ranked by class number, as argmax does."""
    scores = scores.astype(np.float64)
    own = scores[np.arange(len(scores)), labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    place = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    highest = scores.max(axis=1, keepdims=True)
    loss = np.log(np.exp(scores - highest).sum(axis=1, keepdims=True)) + highest - own
    return np.array([loss.sum(), (place < 1).sum(), (place < TOP).sum(), len(scores)], np.float64)


def merge_metrics(rows: MetricSums) -> dict[str, float] | None:
    """Metrics over all phones; None without samples."""
    total = rows.reshape(-1, len(FIELDS)).sum(axis=0)
    return {**mean_metrics(total), "samples": round(total[-1])} if total[-1] else None


def mean_metrics(sums: MetricSums) -> dict[str, float]:
    *totals, samples = sums.tolist()
    if not math.isfinite(totals[0]):
        raise AgentError("the network's scores are not finite: lower the learning rate", code=ErrorCode.DIVERGED)
    return dict(zip(FIELDS, (each / samples for each in totals), strict=False))
