"""Activations stored in fp16: step time, memory and test accuracy compared with fp32.

    python -m benchmarks.half
    python -m benchmarks.half --only train --epochs 1

`steps` alternates between both formats, so that other load affects both, and reports the best of each. `train` repeats
the training of winograd_ab.py (ResNet-20 on Fashion-MNIST at 32x32x3) with each format, from the same weights and with
the same images in the same order. Exits with 1 if fp16 loses more than half a percentage point of accuracy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.networks import network
from benchmarks.peers import Peer
from benchmarks.winograd_ab import FASHION, POINTS, RULES, SCHEDULE, Data, accuracy, batches, load
from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.contract.sizes import parse_bytes
from phone_agent.nn.packing import State
from phone_agent.nn.plan.memory_plan import estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options
from phone_agent.train.optimizers import build_optimizer
from phone_agent.train.schedules import learning_rate

NETWORKS = ("resnet50", "mobilenet_v1")
STORED = {"fp32": False, "fp16": True}
notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Steps:
    """Best step time, peak memory and largest planned batch (without recomputation) of each format."""

    network: str
    batch: int
    seconds: dict[str, float]
    peak_mb: dict[str, float]
    largest: dict[str, int]


@dataclass(frozen=True)
class TrainedModel:
    stored: str
    losses: tuple[float, ...]
    accuracy: float


def main() -> None:
    options = _options()
    steps, runs = [], []
    if options.only in {"both", "steps"}:
        steps = [compare(name, options) for name in options.networks]
        _print_steps(steps, options)
    if options.only in {"both", "train"}:
        train, test = load(FASHION, "train"), load(FASHION, "t10k")
        runs = [train_model(stored, train, test, options) for stored in STORED]
        _print_runs(runs, options)
    if options.json:
        print(json.dumps({"steps": [asdict(one) for one in steps], "train": [asdict(one) for one in runs]}))
    if runs and runs[0].accuracy - runs[1].accuracy > POINTS:
        sys.exit(1)


def compare(name: str, options: argparse.Namespace) -> Steps:
    peers = {stored: Peer(stored, "benchmarks.our_peer") for stored in STORED}
    best = dict.fromkeys(STORED, float("inf"))
    peak = dict.fromkeys(STORED, 0.0)
    with peers["fp32"], peers["fp16"]:
        for stored, peer in peers.items():
            peer.ask("open", model=name, batch=options.batch, threads=options.threads, half=STORED[stored])
            peer.ask("steps", count=1)
        for _ in range(options.turns):
            for stored, peer in peers.items():
                answer = peer.ask("steps", count=options.steps)
                best[stored] = min(best[stored], *answer["seconds"])
                peak[stored] = float(answer["peak_rss_mb"])
    graph, budget = network(name), parse_bytes(options.memory)
    largest = {
        stored: largest_batch(graph, budget, Options(threads=options.threads, half=half))
        for stored, half in STORED.items()
    }
    return Steps(name, options.batch, best, peak, largest)


def train_model(stored: str, train: Data, test: Data, options: argparse.Namespace) -> TrainedModel:
    graph = models.build("resnet20")
    state = State(graph, options.seed)
    half = STORED[stored]
    executable = get_backend("cpu").compile(graph, state, options.images, Options(threads=options.threads, half=half))
    optimizer = build_optimizer(RULES, state, threads=options.threads)
    steps = int(options.epochs * options.samples) // options.images
    losses, started = [], time.monotonic()
    for step, (images, labels) in enumerate(batches(train, options.seed, steps, options.images), start=1):
        losses.append(executable.loss_and_gradients(images, labels, 1.0))
        optimizer.update(slice(None), learning_rate(RULES, SCHEDULE, step, steps), step)
    notes.print(f"{stored}: {steps} steps in {time.monotonic() - started:.0f} s", markup=False)
    return TrainedModel(stored, tuple(losses), accuracy(executable, test))


def _print_steps(steps: list[Steps], options: argparse.Namespace) -> None:
    columns = ("network", "batch", "fp32 ms", "fp16 ms", "fp16 / fp32", "fp32 MB", "fp16 MB", "arena fp16 / fp32")
    table = Table(*columns, f"largest batch in {options.memory}")
    for one in steps:
        arenas = {
            stored: estimate_memory(network(one.network), one.batch, Options(threads=options.threads, half=half)).arena
            for stored, half in STORED.items()
        }
        table.add_row(
            one.network,
            str(one.batch),
            *(f"{one.seconds[stored] * 1e3:.0f}" for stored in STORED),
            f"{one.seconds['fp16'] / one.seconds['fp32']:.3f}",
            *(f"{one.peak_mb[stored]:.0f}" for stored in STORED),
            f"{arenas['fp16'] / arenas['fp32']:.3f}",
            f"{one.largest['fp32']} -> {one.largest['fp16']}",
        )
    _console(options).print(table)


def _print_runs(runs: list[TrainedModel], options: argparse.Namespace) -> None:
    points = 6
    length = len(runs[0].losses)
    ends = [length * (point + 1) // points for point in range(points)]
    table = Table("stored as", "test accuracy, %", *(f"loss to step {end}" for end in ends))
    for run in runs:
        parts = [mean(run.losses[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        table.add_row(run.stored, f"{run.accuracy:.2f}", *(f"{part:.4f}" for part in parts))
    _console(options).print(table)


def _console(options: argparse.Namespace) -> Console:
    return Console(stderr=options.json, width=140, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["both", "steps", "train"], default="both")
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="steps per turn")
    parser.add_argument("--memory", default="2.8GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--samples", type=int, default=20_000, help="samples per epoch")
    parser.add_argument("--images", type=int, default=128, help="batch size for `train`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
