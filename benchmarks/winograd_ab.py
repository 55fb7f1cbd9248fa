"""Does Winograd rounding affect training? The same runs with direct convolution, F(2x2) and F(4x4).

    python -m benchmarks.winograd_ab --seeds 3 --epochs 3

Trains ResNet-20 on Fashion-MNIST, padded by two pixels and replicated to three channels to match the 32x32x3 of CIFAR,
with random shifts and flips. (Fashion-MNIST is a Debian package, dataset-fashion-mnist; CIFAR is not.) Every 3x3
convolution with stride 1 uses the method under test in forward and backward, even where the planner would not. A seed
fixes the weights, the sample order and the augmentation, so runs differ only in rounding, which training amplifies. The
question is whether the methods differ by more than the seeds do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from orchestrator.data.sources import recognize
from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.contract.schema import OptimizerSpec, ScheduleSpec
from phone_agent.core.ops import Algorithm, Kind
from phone_agent.nn.executable import Executable
from phone_agent.nn.packing import State
from phone_agent.nn.plan import algorithms
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import build_optimizer
from phone_agent.train.schedules import learning_rate

FASHION = Path("/usr/share/datasets/fashion-mnist")
SIZE, SHIFT = 32, 2
RULES = OptimizerSpec(learning_rate=0.1, momentum=0.9, weight_decay=5e-4, decay_all=True)
SCHEDULE = ScheduleSpec("cosine")
POINTS = 0.5  # percentage points of accuracy; smaller differences do not matter

Array = NDArray[Any]
notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Data:
    images: Array  # NHWC, normalized
    labels: Array


@dataclass(frozen=True)
class Run:
    method: str
    seed: int
    losses: tuple[float, ...]  # of every step
    accuracy: float  # on the test set, in percent

    @property
    def final_loss(self) -> float:
        """Mean loss over the last tenth of the steps."""
        return mean(self.losses[-max(1, len(self.losses) // 10) :])


def main() -> None:
    options = _options()
    train, test = load(options.data, "train"), load(options.data, "t10k")
    runs = []
    for seed in range(options.seeds):
        for method in Algorithm:
            runs.append(one_run(method, seed, train, test, options))
            last = runs[-1]
            notes.print(f"seed {seed} {last.method}: loss {last.final_loss:.4f}, accuracy {last.accuracy:.2f}%")
    safe = {method: is_safe(runs, method) for method in ("winograd2", "winograd4")}
    if options.json:
        print(json.dumps({"runs": [asdict(run) for run in runs], "safe": safe}))
    else:
        report(runs, safe)
    if not all(safe.values()):
        sys.exit(1)


def load(folder: Path, part: str) -> Data:
    if not folder.is_dir():
        sys.exit(f"{folder} is missing: apt-get install dataset-fashion-mnist")
    source = recognize(folder, 0)
    (block,) = source.train() if part == "train" else source.test()
    images, labels = block.images, block.labels
    gray = np.pad(images.astype(np.float32) / 255, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    images_rgb = np.repeat((gray - gray.mean()) / gray.std(), 3, axis=3)
    return Data(np.ascontiguousarray(images_rgb), labels.astype(np.int32))


def one_run(method: Algorithm, seed: int, train: Data, test: Data, options: argparse.Namespace) -> Run:
    graph = models.build("resnet20")
    state = State(graph, seed)
    with forced(method):
        executable = get_backend("cpu").compile(graph, state, options.batch, Options(threads=options.threads))
    optimizer = build_optimizer(RULES, state, threads=options.threads)
    steps = options.epochs * options.samples // options.batch
    losses = []
    started = time.monotonic()
    for step, (images, labels) in enumerate(batches(train, seed, steps, options.batch), start=1):
        losses.append(executable.loss_and_gradients(images, labels, 1.0))
        optimizer.update(slice(None), learning_rate(RULES, SCHEDULE, step, steps), step)
    notes.print(f"{steps} steps in {time.monotonic() - started:.0f} s")
    return Run(method.name.lower(), seed, tuple(losses), accuracy(executable, test))


def forced(method: Algorithm) -> AbstractContextManager[object]:
    """Make plans use this method for every convolution that supports it."""

    def choose(_: Kind, shape: dict[str, int]) -> Algorithm:
        return method if supports_winograd(shape) else Algorithm.DIRECT

    return patch.object(algorithms, "algorithm_selector", lambda _: choose)


def supports_winograd(shape: dict[str, int]) -> bool:
    required = {"kernel_h": 3, "kernel_w": 3, "stride": 1, "dilation": 1, "groups": 1}
    return all(shape[name] == value for name, value in required.items())


def batches(data: Data, seed: int, steps: int, batch: int) -> Iterator[tuple[Array, Array]]:
    """Batches with random shifts of up to two pixels and random horizontal flips."""
    numbers = np.random.default_rng(seed)
    order = np.concatenate(
        [numbers.permutation(len(data.labels)) for _ in range(steps * batch // len(data.labels) + 1)]
    )
    for step in range(steps):
        chosen = order[step * batch : (step + 1) * batch]
        images = np.roll(data.images[chosen], tuple(numbers.integers(-SHIFT, SHIFT + 1, 2)), axis=(1, 2))
        mirrored = numbers.random(batch) < 0.5
        images[mirrored] = images[mirrored, :, ::-1]
        yield np.ascontiguousarray(images), data.labels[chosen]


def accuracy(executable: Executable, test: Data) -> float:
    return 100.0 * float(np.mean(executable.forward(test.images).argmax(axis=1) == test.labels))


def is_safe(runs: list[Run], method: str) -> bool:
    """Whether the accuracy lost against direct is at most half a percentage point or twice its standard error."""
    lost = [
        direct.accuracy - other.accuracy
        for direct in runs
        for other in runs
        if direct.method == "direct" and other.method == method and direct.seed == other.seed
    ]
    noise = 2 * stdev(lost) / sqrt(len(lost)) if len(lost) > 1 else 0.0
    return mean(lost) <= max(POINTS, noise)


def report(runs: list[Run], safe: dict[str, bool]) -> None:
    table = Table(
        "method", "accuracy by seed, %", "mean", "spread", "final loss", title="ResNet-20, Fashion-MNIST at 32x32x3"
    )
    for method in Algorithm:
        own = [run for run in runs if run.method == method.name.lower()]
        scores = [run.accuracy for run in own]
        spread = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
        each = ", ".join(f"{score:.2f}" for score in scores)
        loss = f"{mean(run.final_loss for run in own):.4f}"
        table.add_row(method.name.lower(), each, f"{mean(scores):.2f}", spread, loss)
    console = Console(width=120, highlight=False)
    console.print(table)
    console.print(_curves(runs))
    for name, verdict in safe.items():
        console.print(f"{name}: {'as good as direct' if verdict else 'WORSE than direct'}")


def _curves(runs: list[Run], points: int = 8) -> Table:
    length = min(len(run.losses) for run in runs)
    ends = [length * (point + 1) // points for point in range(points)]
    table = Table("training loss up to step", *map(str, ends))
    for method in Algorithm:
        own = [run.losses for run in runs if run.method == method.name.lower()]
        parts = [
            mean(mean(losses[start:end]) for losses in own) for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        table.add_row(method.name.lower(), *(f"{part:.4f}" for part in parts))
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=20_000, help="samples per epoch")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, default=FASHION)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
