"""How close to the line rate do the phones sum, and how do MPI_Allreduce and PyTorch's gloo?

    python -m benchmarks.allreduce --torch-python .venv/bin/python

For 4 and then 8 phones brings up a lab of its own with 1 Gbit/s cables. In every round iperf3 measures a stream from
one phone to the next, which sets the limit: 2 (K - 1) / K of the buffer at that rate, or the time of whoever was faster
(then iperf3 was disturbed). Beside it stands what iperf3 gets from every phone to its next at once, as a ring needs it:
where that is less, this computer's cores, which carry all phones' packets, are the limit. Then the contestants sum in
turn, in the same networks; each one's best repeat over all rounds counts. Ends with 1 when a target is not kept.
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
from benchmarks.peers import KEEP_MEMORY, Peer, torch_python

SIZES = (4.7, 25.0, 97.7, 230.0)  # MB: from SqueezeNet's gradients to ResNet-152's
LARGE = 97.7  # from here on the line sets the pace
STORE_PORT, STREAM_PORT = 29501, 5201
STREAM_S = 2
OURS, HALF, MPI, GLOO = "ring fp32", "ring fp16", "MPI_Allreduce", "gloo"
WHOLE = (OURS, MPI, GLOO)  # send every bit of every number

Contestant = Callable[[float, int], list[float]]  # megabytes, repeats: seconds of each


@dataclass
class Found:
    """Of one number of phones and one size."""

    phones: int
    megabytes: float
    rates: list[float] = field(default_factory=list)  # bytes a second, by iperf3
    together: list[float] = field(default_factory=list)  # of the slowest phone, when all send at once
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        by_stream = 2 * (self.phones - 1) / self.phones * self.megabytes * 1e6 / max(self.rates)
        return min(by_stream, *(self.best(name) for name in WHOLE if name in self.seconds))

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def samples(self, repeats: int) -> int:
        """A short sum is over before another process gives its core back: it gets about as much time as a long one."""
        return max(repeats, round(repeats * LARGE / self.megabytes))

    def targets(self) -> Iterator[tuple[str, float, float]]:
        """What was promised, what came out, how much it should at least be."""
        ours = self.best(OURS)
        if self.megabytes >= LARGE:
            yield "share of the limit", self.limit / ours, 0.97
        yield "gloo's time to ours", self.best(GLOO) / ours, 1.0
        yield "MPI_Allreduce's time to ours", self.best(MPI) / ours, 1.2
        yield "fp32's time to fp16's", ours / self.best(HALF), 1.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="an interpreter with PyTorch, where this one has none")
    parser.add_argument("--phones", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, metavar="MB")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="of each in a round; short sums are repeated more often")
    options = parser.parse_args()
    python = torch_python(options.torch_python)
    found: list[Found] = []
    for phones in options.phones:
        with lab(phones, rate=options.rate), gloo(python) as theirs:
            contestants = {OURS: ours("ring", "fp32"), HALF: ours("ring", "fp16"), MPI: ours("mpi"), GLOO: theirs}
            cases = [Found(phones, megabytes) for megabytes in options.sizes]
            found += [race(case, contestants, options.rounds, options.repeats) for case in cases]
    show(options.rate, found)
    if not all(value >= least for each in found for _, value, least in each.targets()):
        sys.exit(1)


def race(found: Found, contestants: dict[str, Contestant], rounds: int, repeats: int) -> Found:
    namespaces = phone_namespaces()
    for turn in range(rounds):
        found.rates.append(stream(namespaces[0], namespaces[1]))
        found.together.append(min(around(namespaces)))
        for name in list(contestants) if turn % 2 == 0 else reversed(contestants):
            found.seconds.setdefault(name, []).extend(contestants[name](found.megabytes, found.samples(repeats)))
            print(f"{found.phones} phones, {found.megabytes:g} MB, {name}: {found.best(name):.3f} s", file=sys.stderr)
    return found


def stream(sender: PhoneNamespace, receiver: PhoneNamespace) -> float:
    """Bytes a second that arrive, by iperf3."""
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


def around(namespaces: list[PhoneNamespace]) -> list[float]:
    """Of each phone's stream to the next, all at once."""
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
    """A rank in every phone's network, on its cores; they live through the whole race and wait in between."""
    environment = {**KEEP_MEMORY, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
    namespaces = phone_namespaces()
    with ExitStack() as stack, ThreadPoolExecutor(len(namespaces)) as pool:
        ranks = [
            stack.enter_context(
                Peer(f"rank {rank}", "benchmarks.gloo_peer", python, environment, namespace.command_prefix)
            )
            for rank, namespace in enumerate(namespaces)
        ]

        def ask(verb: str, each: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
            asked = [pool.submit(peer.ask, verb, **each(rank)) for rank, peer in enumerate(ranks)]
            return [answer.result() for answer in asked]

        def run(megabytes: float, repeats: int) -> list[float]:
            answers = ask("sums", lambda _: {"megabytes": megabytes, "count": repeats})
            return [max(slowest) for slowest in zip(*(answer["seconds"] for answer in answers), strict=True)]

        store = f"{namespaces[0].address}:{STORE_PORT}"
        ask("open", lambda rank: {"store": store, "ranks": len(ranks), "rank": rank})
        yield run


def show(rate: str, found: list[Found]) -> None:
    table = Table(title=f"seconds an allreduce, {rate} cables; best of all rounds")
    for column in ("phones", "MB", "iperf3 Mbit/s", "all at once", "limit", OURS, HALF, MPI, GLOO, "of limit"):
        table.add_column(column, justify="right")
    for each in found:
        best = [each.limit, *(each.best(name) for name in (OURS, HALF, MPI, GLOO))]
        rates = [f"{max(rates) * 8 / 1e6:.0f}" for rates in (each.rates, each.together)]
        share = f"{each.limit / each.best(OURS):.1%}"
        table.add_row(str(each.phones), f"{each.megabytes:g}", *rates, *(f"{value:.3f}" for value in best), share)
    console = Console(width=120)
    console.print(table)
    for each in found:
        for target, value, least in each.targets():
            verdict = "met" if value >= least else "MISSED"
            console.print(
                f"{each.phones} phones, {each.megabytes:g} MB: {target} {value:.3f} (>= {least:g}): {verdict}"
            )


if __name__ == "__main__":
    main()
