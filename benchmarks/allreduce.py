"""Allreduce speed relative to the line rate: our ring against MPI_Allreduce and gloo (PyTorch).

    python -m benchmarks.allreduce --torch-python .venv/bin/python

Starts a lab of 4 and then of 8 phones with 1 Gbit/s links. In every round, iperf3 measures a stream from one phone to
the next. This gives the lower bound: the time for 2 (K - 1) / K of the buffer at that rate, or the time of the fastest
contestant if that is less (then iperf3 was disturbed). The column `all streams` is the iperf3 rate while every phone
sends to its successor, as in a ring; if it is lower, the bottleneck is the cores of this computer, which carry the
packets of all phones. Then the contestants take turns in the same network namespaces, and the best repeat of each over
all rounds counts. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.labs import INTERFACE, PhoneNamespace, clusterctl, lab, phone_namespaces
from benchmarks.peers import RETAIN_FREED_MEMORY, Peer, torch_python

SIZES = (4.7, 25.0, 97.7, 230.0)  # MB: gradients of SqueezeNet up to those of ResNet-152
LARGE = 97.7  # MB: from this size on the line rate is the bottleneck
STORE_PORT, STREAM_PORT = 29501, 5201
STREAM_S = 2
OURS, HALF, MPI, GLOO = "ring fp32", "ring fp16", "MPI_Allreduce", "gloo"
LOSSLESS = (OURS, MPI, GLOO)

Contestant = Callable[[float, int], list[float]]  # (megabytes, repeats) -> seconds of each repeat


@dataclass
class Measurement:
    """Results for one number of phones and one buffer size."""

    phones: int
    megabytes: float
    rates: list[float] = field(default_factory=list)  # bytes per second of one stream, by iperf3
    ring_rates: list[float] = field(default_factory=list)  # slowest stream while all phones send
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        by_stream = 2 * (self.phones - 1) / self.phones * self.megabytes * 1e6 / max(self.rates)
        return min(by_stream, *(self.best(name) for name in LOSSLESS if name in self.seconds))

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def samples(self, repeats: int) -> int:
        """Small buffers are repeated more often: a short sum is easily disturbed by other processes."""
        return max(repeats, round(repeats * LARGE / self.megabytes))

    def targets(self) -> Iterator[tuple[str, float, float]]:
        """Name, measured value and required minimum of each target."""
        ours = self.best(OURS)
        if self.megabytes >= LARGE:
            yield "fraction of the line-rate limit", self.limit / ours, 0.97
        yield "gloo time / our time", self.best(GLOO) / ours, 1.0
        yield "MPI_Allreduce time / our time", self.best(MPI) / ours, 1.2
        yield "fp32 time / fp16 time", ours / self.best(HALF), 1.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--phones", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, metavar="MB")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="repeats of each contestant per round; small buffers are repeated more often",
    )
    options = parser.parse_args()
    python = torch_python(options.torch_python)
    measurements: list[Measurement] = []
    for phones in options.phones:
        with lab(phones, rate=options.rate), gloo(python) as theirs:
            contestants = {OURS: ours("ring", "fp32"), HALF: ours("ring", "fp16"), MPI: ours("mpi"), GLOO: theirs}
            cases = [Measurement(phones, megabytes) for megabytes in options.sizes]
            measurements += [race(case, contestants, options.rounds, options.repeats) for case in cases]
    show(options.rate, measurements)
    if not all(value >= minimum for each in measurements for _, value, minimum in each.targets()):
        sys.exit(1)


def race(measurement: Measurement, contestants: dict[str, Contestant], rounds: int, repeats: int) -> Measurement:
    namespaces = phone_namespaces()
    for turn in range(rounds):
        measurement.rates.append(stream(namespaces[0], namespaces[1]))
        measurement.ring_rates.append(min(ring_streams(namespaces)))
        for name in list(contestants) if turn % 2 == 0 else reversed(contestants):
            measurement.seconds.setdefault(name, []).extend(
                contestants[name](measurement.megabytes, measurement.samples(repeats))
            )
            print(
                f"{measurement.phones} phones, {measurement.megabytes:g} MB, {name}: {measurement.best(name):.3f} s",
                file=sys.stderr,
            )
    return measurement


def stream(sender: PhoneNamespace, receiver: PhoneNamespace) -> float:
    """Bytes per second that arrive, measured by iperf3."""
    port = ("--port", str(STREAM_PORT))
    server = [*receiver.command_prefix, "iperf3", "--server", "--one-off", *port]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as listening:
        try:
            time.sleep(0.5)
            client = [
                *sender.command_prefix,
                "iperf3",
                "--client",
                receiver.address,
                "--time",
                str(STREAM_S),
                "--json",
                *port,
            ]
            done = subprocess.run(client, stdout=subprocess.PIPE, text=True, check=True)
            listening.wait(10)
        finally:
            listening.kill()
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8


def ring_streams(namespaces: list[PhoneNamespace]) -> list[float]:
    """Rates of the streams from each phone to the next, all running concurrently."""
    with ThreadPoolExecutor(len(namespaces)) as pool:
        return list(pool.map(stream, namespaces, [*namespaces[1:], namespaces[0]]))


def ours(algorithm: str, wire: str = "fp32") -> Contestant:
    def run(megabytes: float, repeats: int) -> list[float]:
        flags = ("--mb", str(megabytes), "--algorithm", algorithm, "--wire", wire, "--repeats", str(repeats))
        report = json.loads(clusterctl("bench", "allreduce", *flags, "--json"))
        return list(report["all_seconds"])

    return run


@contextmanager
def gloo(python: str) -> Iterator[Contestant]:
    """One gloo rank in the network namespace and on the cores of each phone; idle while others are measured."""
    environment = {**RETAIN_FREED_MEMORY, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
    namespaces = phone_namespaces()
    with ExitStack() as stack, ThreadPoolExecutor(len(namespaces)) as pool:
        ranks = [
            stack.enter_context(
                Peer(f"rank {rank}", "benchmarks.gloo_peer", python, environment, namespace.command_prefix)
            )
            for rank, namespace in enumerate(namespaces)
        ]

        def ask(verb: str, each: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
            answers = [pool.submit(peer.ask, verb, **each(rank)) for rank, peer in enumerate(ranks)]
            return [answer.result() for answer in answers]

        def run(megabytes: float, repeats: int) -> list[float]:
            answers = ask("sums", lambda _: {"megabytes": megabytes, "count": repeats})
            return [max(slowest) for slowest in zip(*(answer["seconds"] for answer in answers), strict=True)]

        store = f"{namespaces[0].address}:{STORE_PORT}"
        ask("open", lambda rank: {"store": store, "ranks": len(ranks), "rank": rank})
        yield run


def show(rate: str, measurements: list[Measurement]) -> None:
    table = Table(title=f"seconds per allreduce, {rate} links; best of all rounds")
    for column in ("phones", "MB", "iperf3 Mbit/s", "all streams", "limit", OURS, HALF, MPI, GLOO, "of limit"):
        table.add_column(column, justify="right")
    for each in measurements:
        best = [each.limit, *(each.best(name) for name in (OURS, HALF, MPI, GLOO))]
        rates = [f"{max(rates) * 8 / 1e6:.0f}" for rates in (each.rates, each.ring_rates)]
        fraction = f"{each.limit / each.best(OURS):.1%}"
        table.add_row(str(each.phones), f"{each.megabytes:g}", *rates, *(f"{value:.3f}" for value in best), fraction)
    console = Console(width=120)
    console.print(table)
    for each in measurements:
        for target, value, minimum in each.targets():
            verdict = "met" if value >= minimum else "MISSED"
            console.print(
                f"{each.phones} phones, {each.megabytes:g} MB: {target} {value:.3f} (>= {minimum:g}): {verdict}"
            )


if __name__ == "__main__":
    main()
