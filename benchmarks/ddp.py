"""MobileNet-v1 on four phones: clusterctl against PyTorch DistributedDataParallel over gloo.

    python -m benchmarks.ddp --torch-python .venv/bin/python

Starts its own lab with 1 Gbit/s links. Both sides use the same network namespaces, cores and batch size, and one thread
per rank; PyTorch uses channels_last and its faster SGD implementation. They take turns, the first steps of a turn are
warm-up, and the best turn of each counts. Our side is a real `clusterctl launch`, which reads and normalizes new images
in every step, while PyTorch reuses one batch in memory. Exits with 1 if clusterctl is less than 1.3 times as fast.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.labs import INTERFACE, clusterctl, lab, launch, phone_namespaces
from benchmarks.networks import TABLE_I
from benchmarks.peers import RETAIN_FREED_MEMORY, Peer, torch_python
from benchmarks.targets import Target, report_targets
from phone_agent import models

MODEL, PHONES, PORT, DATASET = "mobilenet_v1", 4, 29500, "blots"
WARM_UP = 3  # steps at the start of a turn that are not measured
OURS, THEIRS = "clusterctl", "PyTorch DDP"
MIN_RATIO = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--batch", type=int, default=TABLE_I[MODEL], help="batch size per phone")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=15, help="measured steps per turn")
    options = parser.parse_args()
    python = torch_python(options.torch_python)
    with lab(PHONES, rate=options.rate), ddp(python, options.batch) as theirs:
        add_random_dataset()
        contestants = {OURS: _ours(options.batch), THEIRS: theirs}
        rates = race(contestants, options.rounds, options.steps, options.batch * PHONES)
    show(options, rates)
    report_targets([Target(f"{OURS} / {THEIRS} images per second", ratio(rates), ">=", MIN_RATIO)])


def add_random_dataset() -> None:
    """Add a dataset with one random picture per class: speed does not depend on the content."""
    spec, random = models.model(MODEL), np.random.default_rng(0)
    side, blots = spec.shape[0], (7, 7, 3)
    with tempfile.TemporaryDirectory() as folder:
        for label in range(spec.classes):
            folder_of_class = Path(folder) / f"{label:04}"
            folder_of_class.mkdir()
            small = Image.fromarray(random.integers(0, 256, blots, np.uint8))
            small.resize((side, side)).save(folder_of_class / "1.jpg")
        clusterctl("data", "add", DATASET, folder, "--size", str(side))


Steps = Callable[[int], list[float]]  # number of steps -> end time of each


def race(contestants: dict[str, Steps], rounds: int, steps: int, images: int) -> dict[str, list[float]]:
    """Images per second in each turn."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name in list(contestants) if turn % 2 == 0 else reversed(contestants):
            ended = contestants[name](WARM_UP + steps)[WARM_UP - 1 :]
            rates[name].append(steps * images / (ended[-1] - ended[0]))
            print(f"{name}: {rates[name][-1]:.1f} images/s", file=sys.stderr)
    return rates


def ratio(rates: dict[str, list[float]]) -> float:
    return max(rates[OURS]) / max(rates[THEIRS])


def _ours(batch: int) -> Steps:
    flags = ("--model", MODEL, "--data", DATASET, "--batch", str(batch), "--threads", "1")
    return lambda steps: [step["time"] for step in launch(*flags, "--steps", str(steps)).of("step")]


@contextmanager
def ddp(python: str, batch: int) -> Iterator[Steps]:
    """One DDP rank in the network namespace and on the cores of each phone; idle while clusterctl runs."""
    environment = {**RETAIN_FREED_MEMORY, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
    namespaces = phone_namespaces()
    with ExitStack() as stack, ThreadPoolExecutor(len(namespaces)) as pool:
        ranks = [
            stack.enter_context(
                Peer(f"rank {rank}", "benchmarks.ddp_peer", python, environment, namespace.command_prefix)
            )
            for rank, namespace in enumerate(namespaces)
        ]

        def ask(verb: str, **arguments: Any) -> list[dict[str, Any]]:
            answers = [pool.submit(peer.ask, verb, **arguments, **_rank(verb, rank)) for rank, peer in enumerate(ranks)]
            return [each.result() for each in answers]

        ask("open", model=MODEL, batch=batch, ranks=len(ranks), store=f"{namespaces[0].address}:{PORT}")
        yield lambda steps: ask("steps", count=steps)[0]["ended"]


def _rank(verb: str, rank: int) -> dict[str, int]:
    return {"rank": rank} if verb == "open" else {}


def show(options: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    table = Table(title=f"{MODEL}, {PHONES} phones, batch {options.batch} per phone, {options.rate}")
    for column in ("", "best images/s", "all turns"):
        table.add_column(column, justify="right" if column else "left")
    for name, turns in rates.items():
        table.add_row(name, f"{max(turns):.1f}", ", ".join(f"{turn:.1f}" for turn in turns))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
