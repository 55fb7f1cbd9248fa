"""Does training reach the same accuracy with compressed gradients?

    python -m benchmarks.wires --model lenet --steps 600 --seeds 0 1 2
    python -m benchmarks.wires --ranks 32 --batch 4      # the same global batch over ten times as many hops

Trains the same network on Fashion-MNIST (/usr/share/datasets/fashion-mnist, or --data), once per wire format and seed.
The ranks are threads of this process, each with its own weights. Ring, wire formats and optimizer are those of the
phones; only the network between them is replaced by memory. Reported for every wire format: the loss over the last
tenth of the steps and the test accuracy, both compared with fp32 and the same seed, and the bytes that a rank sends per
step in that last tenth (as in a run, PowerSGD sends the first tenth uncompressed). All ranks must end with identical
weights. Exits with 1 if the mean accuracy of a wire format is more than half a percentage point below fp32.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.targets import Target, report_targets
from orchestrator.data.sources import recognize
from orchestrator.data.sources.source import Block
from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.powersgd import WIRE, PowerSgd, uncompressed_steps
from phone_agent.comm.reducer import PackedReducer, StatefulReducer
from phone_agent.comm.wire import WIRE_FORMATS, wire_format
from phone_agent.contract import rng
from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec
from phone_agent.nn.packing import State
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options
from phone_agent.train.evaluate import combine_statistics
from phone_agent.train.optimizers import build_optimizer
from phone_agent.train.schedules import learning_rate
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

NAMES = (*WIRE_FORMATS, "powersgd")
EXACT = "fp32"
TOLERANCE = 0.5  # percentage points
RULES = OptimizerSpec(name="nesterov", learning_rate=0.05, momentum=0.9, weight_decay=5e-4)
SCHEDULE = ScheduleSpec(policy="cosine", warmup_steps=50)
BUCKET_BYTES = 64 * 1024  # small, so that small networks have several buckets too
EVALUATION_BATCH = 500  # images
PATIENCE_S = 1800


@dataclass(frozen=True)
class Samples:
    images: NDArray[np.float32]
    labels: NDArray[np.uint8]


@dataclass(frozen=True)
class Setting:
    model: str
    ranks: int
    batch: int  # per rank
    steps: int

    @property
    def last(self) -> int:
        """Number of steps at the end that the report covers."""
        return max(self.steps // 10, 1)

    def sample_indices(self, step: int, rank: int, count: int, seed: int) -> NDArray[np.int64]:
        """One stream of epochs over all samples, cut into global batches, and each of these into one part per rank."""
        start = ((step - 1) * self.ranks + rank) * self.batch
        positions = np.arange(start, start + self.batch)
        return np.array([_order(seed, position // count, count)[position % count] for position in positions.tolist()])


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    return rng.permutation((seed, 3, epoch), count)


@dataclass(frozen=True)
class Outcome:
    wire: str
    seed: int
    loss: float
    accuracy: float
    bytes_per_step: float


class Rank:
    """The training of one phone, as a thread of this process."""

    def __init__(self, setting: Setting, wire: str, seed: int, world: ThreadWorld, train: Samples) -> None:
        self._setting, self._seed, self._world, self._train = setting, seed, world, train
        graph = models.build(setting.model, 10, train.images.shape[1:])
        self.state = State(graph, seed)
        self._executable = get_backend("cpu").compile(graph, self.state, setting.batch, Options())
        self._parts = bucket_slices(self.state.packing, BUCKET_BYTES)
        self._optimizer = build_optimizer(RULES, self.state)
        self.summed, self._reducer = self._make_reducer(wire)

    def _make_reducer(self, wire: str) -> tuple[Collective, StatefulReducer]:
        if wire == "powersgd":
            thin = make_collective("ring", self._world, WIRE)
            return thin, PowerSgd(thin, self.state.packing, uncompressed=uncompressed_steps(self._setting.steps))
        summed = make_collective("ring", self._world, wire_format(wire))
        return summed, PackedReducer(summed)

    def losses(self) -> Iterator[float]:
        weight = 1 / self._setting.ranks
        for step in range(1, self._setting.steps + 1):
            indices = self._setting.sample_indices(step, self._world.rank, len(self._train.labels), self._seed)
            images, labels = self._train.images[indices], self._train.labels[indices]
            loss = self._executable.loss_and_gradients(images, labels, weight, step)
            for part in self._parts:
                self._reducer.reduce(self.state.gradients, part, step)
                self._optimizer.update(part, learning_rate(RULES, SCHEDULE, step, self._setting.steps), step)
            yield loss

    def accuracy(self, test: Samples) -> float:
        combine_statistics(self.state, 1 / self._setting.ranks, make_collective("ring", self._world).allreduce)
        right = sum(
            int(
                (
                    self._executable.forward(test.images[at : at + EVALUATION_BATCH]).argmax(axis=1)
                    == test.labels[at : at + EVALUATION_BATCH]
                ).sum()
            )
            for at in range(
                self._world.rank * EVALUATION_BATCH, len(test.labels), self._setting.ranks * EVALUATION_BATCH
            )
        )
        return float(self._world.allgather(np.array([right], np.float64)).sum()) / len(test.labels)


def run(setting: Setting, wire: str, seed: int, train: Samples, test: Samples) -> Outcome:
    def work(world: ThreadWorld) -> tuple[list[float], float, float, bytes]:
        rank = Rank(setting, wire, seed, world, train)
        running = rank.losses()
        losses = list(islice(running, setting.steps - setting.last))
        before = rank.summed.traffic.bytes
        losses += running
        sent = (rank.summed.traffic.bytes - before) / setting.last
        values = rank.state.values.tobytes()
        return losses, rank.accuracy(test), sent, values

    ranks = on_ranks(setting.ranks, work, PATIENCE_S)
    assert len({values for *_, values in ranks}) == 1, f"{wire}: ranks ended with different weights"
    loss = fmean(fmean(losses[-setting.last :]) for losses, *_ in ranks)
    return Outcome(wire, seed, loss, ranks[0][1], fmean(sent for _, _, sent, _ in ranks))


def fashion_mnist(folder: Path) -> tuple[Samples, Samples]:
    def load(blocks: Iterator[Block]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        (block,) = blocks
        return np.divide(block.images, 255, dtype=np.float32), block.labels.astype(np.uint8)

    source = recognize(folder, 0)
    (images, labels), (test_images, test_labels) = load(source.train()), load(source.test())
    mean, deviation = images.mean(), images.std()
    return Samples((images - mean) / deviation, labels), Samples((test_images - mean) / deviation, test_labels)


def show(outcomes: list[Outcome]) -> None:
    exact = {outcome.seed: outcome for outcome in outcomes if outcome.wire == EXACT}
    table = Table(title="Fashion-MNIST by wire format; in parentheses: difference to fp32 with the same seed")
    for heading in ("wire", "seed", "loss", "test accuracy, %", "bytes per step", "relative to fp32"):
        table.add_column(heading, justify="left" if heading == "wire" else "right")
    for wire in dict.fromkeys(outcome.wire for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.wire == wire]
        for outcome in mine:
            table.add_row(*_row(outcome, exact.get(outcome.seed)))
        table.add_row(
            wire,
            "mean",
            f"{fmean(each.loss for each in mine):.4f}",
            f"{100 * fmean(each.accuracy for each in mine):.2f}",
        )
        table.add_section()
    Console(width=110).print(table)


def targets(outcomes: Sequence[Outcome]) -> Iterator[Target]:
    """Every wire format against fp32, over the seeds that both have."""
    exact = {outcome.seed: outcome.accuracy for outcome in outcomes if outcome.wire == EXACT}
    for wire in dict.fromkeys(outcome.wire for outcome in outcomes if outcome.wire != EXACT):
        leads = [each.accuracy - exact[each.seed] for each in outcomes if each.wire == wire and each.seed in exact]
        points = 100 * fmean(leads) if leads else None
        yield Target(f"{wire}: percentage points above {EXACT}", points, ">=", -TOLERANCE)


def _row(outcome: Outcome, exact: Outcome | None) -> tuple[str, ...]:
    loss, accuracy, ratio = f"{outcome.loss:.4f}", f"{100 * outcome.accuracy:.2f}", ""
    if exact:
        loss += f" ({outcome.loss - exact.loss:+.4f})"
        accuracy += f" ({100 * (outcome.accuracy - exact.accuracy):+.2f})"
        ratio = f"1/{exact.bytes_per_step / outcome.bytes_per_step:.2f}"
    return outcome.wire, str(outcome.seed), loss, accuracy, f"{outcome.bytes_per_step:,.0f}", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="batch size per rank")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--wires", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--json", action="store_true", help="one JSON line per training instead of the table")
    options = parser.parse_args()
    setting = Setting(options.model, options.ranks, options.batch, options.steps)
    train, test = fashion_mnist(options.data)
    outcomes = []
    for seed in options.seeds:
        for wire in options.wires:
            outcomes.append(run(setting, wire, seed, train, test))
            if options.json:
                print(json.dumps(asdict(outcomes[-1])), flush=True)
    if not options.json:
        show(outcomes)
    report_targets(targets(outcomes), sys.stderr if options.json else sys.stdout)


if __name__ == "__main__":
    main()
