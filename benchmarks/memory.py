"""Training memory: our engine against PyTorch, and the largest batch that fits in the 2.8 GB of a phone.

    python -m benchmarks.memory --torch-python ~/torch/bin/python
    python -m benchmarks.memory --only fits --networks resnet50
    python -m benchmarks.memory --only fits --ours-only --half

`peak` is the peak resident set of the whole process, including interpreter and libraries, over a few training steps.
`fits` searches for the largest batch by running steps under a hard memory limit (limits.py), starting from the estimate
of the plan: once without and once with recomputation of activations. The search is the same for PyTorch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.limits import memory_limit
from benchmarks.networks import network
from benchmarks.peers import RETAIN_FREED_MEMORY, Peer, PeerError, torch_python
from phone_agent.contract.sizes import parse_bytes
from phone_agent.nn.plan.memory_plan import estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options

LEAN = ("resnet50", "mobilenet_v1", "mobilenet_v2")
TARGET_BATCH = {"resnet50": 40, "resnet152": 18, "mobilenet_v1": 80}  # the engine of the paper fitted 4, 2 and 8
notes = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Peak:
    network: str
    batch: int
    ours_mb: float
    planned_mb: float
    torch_mb: float

    @property
    def ratio(self) -> float:
        return self.ours_mb / self.torch_mb


@dataclass(frozen=True)
class Fits:
    network: str
    contestant: str
    planned: int | None  # largest batch according to the plan
    batch: int  # largest batch that ran
    too_many: int  # smallest batch that failed
    target: int


def main() -> None:
    options = _options()
    python = None if options.ours_only else torch_python(options.torch_python)
    peaks, fits = [], []
    if options.only in {"both", "peak"} and python is not None:
        peaks = [peak(name, options, python) for name in options.networks or LEAN]
        _print_peaks(peaks, options)
    if options.only in {"both", "fits"}:
        for name in options.networks or TARGET_BATCH:
            fits += list(_fits(name, options, python))
        _print_fits(fits, options)
    if options.json:
        print(json.dumps({"peak": [asdict(one) for one in peaks], "fits": [asdict(one) for one in fits]}, indent=2))
    if any(one.ratio > 0.5 for one in peaks) or any(one.batch < one.target for one in fits):
        sys.exit(1)


def peak(name: str, options: argparse.Namespace, python: str) -> Peak:
    arguments = {"model": name, "batch": options.batch, "threads": options.threads}
    ours = _peak_of(Peer("ours", "benchmarks.our_peer"), {**arguments, "half": options.half})
    theirs = min(
        _peak_of(Peer("torch", "benchmarks.torch_peer", python, env), arguments) for env in ({}, RETAIN_FREED_MEMORY)
    )
    planned = (
        estimate_memory(network(name), options.batch, Options(threads=options.threads, half=options.half)).total / 1e6
    )
    notes.print(f"{name} batch {options.batch}: ours {ours:.0f} MB, PyTorch {theirs:.0f} MB", markup=False)
    return Peak(name, options.batch, ours, planned, theirs)


def _peak_of(peer: Peer, arguments: dict[str, Any]) -> float:
    with peer:
        peer.ask("open", **arguments)
        return float(peer.ask("steps", count=2)["peak_rss_mb"])


def _fits(name: str, options: argparse.Namespace, python: str | None) -> list[Fits]:
    graph, budget = network(name), parse_bytes(options.memory)
    plain = Options(threads=options.threads, half=options.half)
    target = TARGET_BATCH.get(name, 1)
    fits = []
    for recompute, label in ((False, "ours"), (True, "ours, recomputing")):
        planned = largest_batch(graph, budget, plain, recompute=recompute)
        more = {"half": options.half, "memory_bytes": budget if recompute else None}
        good, bad = search(_runner("benchmarks.our_peer", None, name, options, **more), planned)
        fits.append(Fits(name, label, planned, good, bad, target * (2 if recompute else 1)))
    if python is not None:
        good, bad = search(_runner("benchmarks.torch_peer", python, name, options), max(1, fits[0].batch // 2))
        fits.append(Fits(name, "PyTorch", None, good, bad, 0))
    return fits


def _runner(
    module: str, python: str | None, name: str, options: argparse.Namespace, **more: Any
) -> Callable[[int], bool]:
    budget = parse_bytes(options.memory)

    def runs(batch: int) -> bool:
        with memory_limit(budget) as limit, Peer(module, module, python, inside=limit.inside) as peer:
            try:
                peer.ask("open", model=name, batch=batch, threads=options.threads, **more)
                peer.ask("steps", count=2)
            except PeerError as error:
                notes.print(f"{name} {module} batch {batch}: failed ({error})", markup=False)
                return False
        notes.print(f"{name} {module} batch {batch}: ran ({limit.kind})", markup=False)
        return True

    return runs


def search(runs: Callable[[int], bool], start: int) -> tuple[int, int]:
    """The largest batch that runs and the smallest that fails, to within 2%, searched from `start`."""
    good, bad, step = 0, 0, max(1, start // 32)
    batch = start
    while not (good and bad):
        if runs(batch):
            good = max(good, batch)
        else:
            bad = batch if not bad else min(bad, batch)
        if bad == 1:
            return 0, 1
        batch = max(1, batch + step if good == batch else batch - step)
        step *= 2
    while bad - good > max(1, good // 50):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if runs(middle) else (good, middle)
    return good, bad


def _print_peaks(peaks: list[Peak], options: argparse.Namespace) -> None:
    table = Table("network", "batch", "ours MB", "planned MB", "PyTorch MB", "ours / PyTorch", title="peak memory")
    for one in peaks:
        numbers = (one.ours_mb, one.planned_mb, one.torch_mb)
        table.add_row(one.network, str(one.batch), *(f"{number:.0f}" for number in numbers), f"{one.ratio:.2f}")
    _console(options).print(table)


def _print_fits(fits: list[Fits], options: argparse.Namespace) -> None:
    title = f"largest batch in {options.memory}"
    table = Table("network", "", "planned", "ran", "failed", "target", title=title)
    for one in fits:
        planned = "" if one.planned is None else str(one.planned)
        target = f">= {one.target}" if one.target else ""
        table.add_row(one.network, one.contestant, planned, str(one.batch), str(one.too_many), target)
    _console(options).print(table)


def _console(options: argparse.Namespace) -> Console:
    return Console(stderr=options.json, width=120, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["both", "peak", "fits"], default="both")
    parser.add_argument(
        "--networks", type=lambda text: text.split(","), help="comma-separated (default: those of the paper)"
    )
    parser.add_argument("--batch", type=int, default=16, help="batch size for `peak`")
    parser.add_argument("--memory", default="2.8GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--half", action="store_true", help="store our activations in fp16")
    parser.add_argument("--quick", action="store_true", help="only the peak of one network")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.only, options.networks, options.batch = "peak", ["mobilenet_v1"], 8
    return options


if __name__ == "__main__":
    main()
