"""MobileNet-v1 on four phones: clusterctl against PyTorch's DistributedDataParallel over gloo.

    python -m benchmarks.ddp --torch-python .venv/bin/python

Brings up a lab of its own with 1 Gbit/s cables. Both sides have the same networks (the phones' namespaces), the same
cores, one thread a rank, the same images a step; PyTorch in channels_last, with the faster of its SGDs. They take
turns; the first steps of a turn do not count; the best turn of each does. Ours is a real `clusterctl launch`, which
reads new images of a dataset and normalises them each step; PyTorch finds the same ones in memory every time. Ends
with 1 where ours is less than 1.3 times as fast.
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
from benchmarks.peers import KEEP_MEMORY, Peer, torch_python
from benchmarks.targets import Target, report_targets
from phone_agent import models

MODEL, PHONES, PORT, DATASET = "mobilenet_v1", 4, 29500, "blots"
WARM_UP = 3  # steps of a turn that do not count
OURS, THEIRS = "clusterctl", "PyTorch DDP"
AT_LEAST = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="an interpreter with PyTorch, where this one has none")
    parser.add_argument("--batch", type=int, default=TABLE_I[MODEL], help="images a phone and step")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=15, help="that count, in a turn")
    options = parser.parse_args()
    python = torch_python(options.torch_python)
    with lab(PHONES, rate=options.rate), ddp(python, options.batch) as theirs:
        add_pictures()
        contestants = {OURS: _ours(options.batch), THEIRS: theirs}
        found = race(contestants, options.rounds, options.steps, options.batch * PHONES)
    show(options, found)
    report_targets([Target(f"{OURS}'s images a second to {THEIRS}'s", ratio(found), ">=", AT_LEAST)])


def add_pictures() -> None:
    """A dataset of as many classes as the network has, a picture each: what is on them costs nothing."""
    made_for, random = models.model(MODEL), np.random.default_rng(0)
    side, blots = made_for.shape[0], (7, 7, 3)
    with tempfile.TemporaryDirectory() as folder:
        for label in range(made_for.classes):
            of_class = Path(folder) / f"{label:04}"
            of_class.mkdir()
            small = Image.fromarray(random.integers(0, 256, blots, np.uint8))
            small.resize((side, side)).save(of_class / "1.jpg")
        clusterctl("data", "add", DATASET, folder, "--size", str(side))


Steps = Callable[[int], list[float]]  # how many: when each ended


def race(contestants: dict[str, Steps], rounds: int, steps: int, images: int) -> dict[str, list[float]]:
    """Images a second, turn by turn."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name in list(contestants) if turn % 2 == 0 else reversed(contestants):
            ended = contestants[name](WARM_UP + steps)[WARM_UP - 1 :]
            found[name].append(steps * images / (ended[-1] - ended[0]))
            print(f"{name}: {found[name][-1]:.1f} images/s", file=sys.stderr)
    return found


def ratio(found: dict[str, list[float]]) -> float:
    return max(found[OURS]) / max(found[THEIRS])


def _ours(batch: int) -> Steps:
    flags = ("--model", MODEL, "--data", DATASET, "--batch", str(batch), "--threads", "1")
    return lambda steps: [step["time"] for step in launch(*flags, "--steps", str(steps)).of("step")]


@contextmanager
def ddp(python: str, batch: int) -> Iterator[Steps]:
    """A rank in every phone's network, on its cores; they live through the whole race and wait in between."""
    environment = {**KEEP_MEMORY, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
    namespaces = phone_namespaces()
    with ExitStack() as stack, ThreadPoolExecutor(len(namespaces)) as pool:
        ranks = [
            stack.enter_context(
                Peer(f"rank {rank}", "benchmarks.ddp_peer", python, environment, namespace.command_prefix)
            )
            for rank, namespace in enumerate(namespaces)
        ]

        def ask(verb: str, **arguments: Any) -> list[dict[str, Any]]:
            asked = [pool.submit(peer.ask, verb, **arguments, **_rank(verb, rank)) for rank, peer in enumerate(ranks)]
            return [each.result() for each in asked]

        ask("open", model=MODEL, batch=batch, ranks=len(ranks), store=f"{namespaces[0].address}:{PORT}")
        yield lambda steps: ask("steps", count=steps)[0]["ended"]


def _rank(verb: str, rank: int) -> dict[str, int]:
    return {"rank": rank} if verb == "open" else {}


def show(options: argparse.Namespace, found: dict[str, list[float]]) -> None:
    table = Table(title=f"{MODEL}, {PHONES} phones, {options.batch} images each a step, {options.rate}")
    for column in ("", "best images/s", "all turns"):
        table.add_column(column, justify="right" if column else "left")
    for name, turns in found.items():
        table.add_row(name, f"{max(turns):.1f}", ", ".join(f"{turn:.1f}" for turn in turns))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
