"""Synchronous data-parallel training: forward and backward here, communication and updates in a second thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm.reducer import Reducer
from phone_agent.comm.world import World
from phone_agent.contract import rng
from phone_agent.data.sampling import Source
from phone_agent.device.condition import Condition
from phone_agent.memckpt.checkpointer import NULL_CHECKPOINTER, Checkpointer
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State
from phone_agent.train.optimizers import Optimizer
from phone_agent.train.overlap import Overlap
from phone_agent.train.rank_steps import RankStep

DROPOUT_STREAM = 4  # of random numbers; see data.sampling for the others
SYNC_LAG = 2  # steps: all ranks know the results of step n before they start to compute step n + SYNC_LAG

ReportStep = Callable[[int, RankStep], None]  # the step's number, and this rank's result


@dataclass(frozen=True)
class StepUpdates:
    """What the communication thread does to the training state. `report` exchanges each step's results."""

    world: World
    state: State
    reducer: Reducer
    optimizer: Optimizer
    learning_rate: Callable[[int], float]
    report: ReportStep
    checkpointer: Checkpointer = NULL_CHECKPOINTER

    def reduce(self, span: slice, step: int) -> None:
        self.reducer.reduce(self.state.gradients, span, step)

    def update(self, bucket: slice, step: int) -> None:
        self.optimizer.update(bucket, self.learning_rate(step), step)

    def exchange(self, step: int, own: RankStep) -> None:
        self.checkpointer.commit(step)
        self.report(step, own)
        self.checkpointer.take_snapshot(step)

    def allgather(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.world.allgather(row)


def split_micro_batches(batch: int, largest: int, first: int = 0, smallest: int = 1) -> list[slice]:
    """Slices of the images from `first` on. As few and as even as possible, so that batch normalization always sees
    about the same number of images. None is smaller than `smallest`, even if one then exceeds `largest`: with 2 and 2,
    an odd batch has one micro-batch of 3 (see Graph.min_capacity)."""
    count = -(-batch // largest)
    if count > 1:
        count = max(1, min(count, batch // smallest))
    borders = [first + batch * index // max(count, 1) for index in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(borders)]


def sizes(micro_batches: Sequence[slice]) -> list[int]:
    return [part.stop - part.start for part in micro_batches]


class BatchAssignment(Protocol):
    def micro_batches(self, step: int) -> Sequence[slice]:
        """The slices of the step's global batch that this rank computes, one after the other. Empty: none."""
        ...


@dataclass(frozen=True)
class TrainingLoop:
    """Each micro-batch is weighted by its fraction of the global batch. So the sum over all ranks is the gradient of
    the global batch, whichever rank computed which part."""

    executable: Executable
    source: Source
    overlap: Overlap
    assignment: BatchAssignment
    global_batch: int
    gradients: NDArray[np.float32]
    overlapping: bool = True
    seed: int = 0
    rank: int = 0
    condition: Callable[[], Condition] = Condition
    checkpointer: Checkpointer = NULL_CHECKPOINTER

    def run(self, first: int, last: int) -> Iterator[int]:
        """Steps `first` to `last`, counted from 1. A step's updates are complete only after `overlap.drain()`."""
        before: Sequence[slice] = ()
        for step in range(first, last + 1):
            self.overlap.wait_for_step(step - SYNC_LAG)
            micro_batches = self.assignment.micro_batches(step)
            if micro_batches and micro_batches != before:
                self._prepare(micro_batches)
                before = micro_batches
            started, waited_s = time.monotonic(), self.overlap.waited_s
            self.overlap.begin(step)
            loss = self._loss_and_gradients(step, micro_batches) if micro_batches else self._zero_gradients()
            if not self.overlapping:
                self.overlap.update_all()
            comm_s = self.overlap.waited_s - waited_s
            compute_s = time.monotonic() - started - comm_s
            self.checkpointer.capture_statistics(step)
            images = sum(sizes(micro_batches))
            self.overlap.finish(RankStep(loss, compute_s, comm_s, self.condition(), images=images))
            yield step

    def _prepare(self, micro_batches: Sequence[slice]) -> None:
        self.executable.prepare(set(sizes(micro_batches)))
        self.source.expect(micro_batches)

    def _loss_and_gradients(self, step: int, micro_batches: Sequence[slice]) -> float:
        """The mean loss of this rank's batch."""
        losses = [self._run_micro_batch(step, number, micro_batches) for number in range(len(micro_batches))]
        return float(np.average(losses, weights=sizes(micro_batches)))

    def _zero_gradients(self) -> float:
        """A rank without images still takes part in the allreduce; its own gradients are zero."""
        for bucket in self.overlap.buckets:
            self.overlap.wait_for_values(bucket.start, bucket.stop)  # until then the step before is reduced there
            self.gradients[bucket] = 0
            if self.overlapping:
                self.overlap.gradients_ready(bucket.start, bucket.stop)
        return 0.0

    def _run_micro_batch(self, step: int, number: int, micro_batches: Sequence[slice]) -> float:
        """Only the first micro-batch waits for updated weights; gradients are complete in the last.

        The images go out of scope here, so that the next ones reuse their memory.
        """
        batch = self.source.batch(step - 1, micro_batches[number])
        self.overlap.mark("data")
        first, last = number == 0, number == len(micro_batches) - 1
        loss = self.executable.loss_and_gradients(
            batch.images,
            batch.labels,
            len(batch.labels) / self.global_batch,
            self._dropout_seed(step, number),
            need=self.overlap.wait_for_values if self.overlapping and first else None,
            ready=self.overlap.gradients_ready if self.overlapping and last else None,
            accumulate=not first,
        )
        self.overlap.mark("backward")
        return loss

    def _dropout_seed(self, step: int, number: int) -> int:
        """Differs between ranks, steps and micro-batches; the same when the run is repeated."""
        return int(rng.bits((self.seed, DROPOUT_STREAM, self.rank, number), 1, start=step)[0])
