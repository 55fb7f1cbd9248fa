"""Which allreduce algorithm is fastest on several switches with slow uplinks between them?

    python -m benchmarks.hierarchy --phones 6 --switches 3 --rate 1gbit --uplink 200mbit

Starts its own lab with the switches in a chain. The algorithms take turns with a small and a large buffer, and the best
repeat of each counts. The lower bound is set by the busiest link: the link of a phone, or, with S switches, an uplink,
which carries 2 (S - 1) / S of the buffer in each direction. Exits with 1 if hierarchical is not faster than the ring
and MPI_Allreduce for a large buffer; for a small buffer, latency dominates.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.labs import clusterctl, lab
from benchmarks.targets import Target, report_targets
from orchestrator.plan.link_rate import bytes_per_second

LARGE = 25.0  # MB: from this size on the uplinks are the bottleneck
OTHERS = ("ring", "MPI_Allreduce")
CONTESTANTS = {
    "ring": ("--algorithm", "ring"),
    "hierarchical": ("--algorithm", "hierarchical"),
    "MPI_Allreduce": ("--algorithm", "mpi"),
    "ring, not by switch": ("--algorithm", "ring", "--order", "interleaved"),
    "hierarchical, not by switch": ("--algorithm", "hierarchical", "--order", "interleaved"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=6)
    parser.add_argument("--switches", type=int, default=3)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--uplink", default="200mbit")
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.1, 25.0], metavar="MB")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each algorithm per round")
    options = parser.parse_args()
    with lab(options.phones, options.switches, options.rate, options.uplink):
        results = {megabytes: race(megabytes, options.rounds, options.repeats) for megabytes in options.sizes}
    show(options, results)
    report_targets(targets(results))


def race(megabytes: float, rounds: int, repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(rounds):
        for name in list(CONTESTANTS) if turn % 2 == 0 else reversed(CONTESTANTS):
            flags = ("--mb", str(megabytes), *CONTESTANTS[name], "--repeats", str(repeats))
            seconds[name] += json.loads(clusterctl("bench", "allreduce", *flags, "--json"))["all_seconds"]
            print(f"{megabytes:g} MB, {name}: {min(seconds[name]):.4f} s", file=sys.stderr)
    return {name: min(each) for name, each in seconds.items()}


def targets(results: dict[float, dict[str, float]]) -> Iterator[Target]:
    for megabytes, best in results.items():
        skip_reason = "" if megabytes >= LARGE else f"less than {LARGE:g} MB"
        for other in OTHERS:
            ratio = best[other] / best["hierarchical"]
            yield Target(f"{megabytes:g} MB: {other} time / hierarchical time", ratio, ">", 1, skip_reason)


def lower_bound(options: argparse.Namespace, megabytes: float) -> float:
    phones: float = 2 * (options.phones - 1) / options.phones / bytes_per_second(options.rate)
    uplinks: float = 2 * (options.switches - 1) / options.switches / bytes_per_second(options.uplink)
    return float(max(phones, uplinks) * megabytes * 1e6)


def show(options: argparse.Namespace, results: dict[float, dict[str, float]]) -> None:
    links = f"{options.rate} links, {options.uplink} uplinks"
    table = Table(title=f"seconds to sum over {options.phones} phones on {options.switches} switches, {links}")
    for column in ("MB", "lower bound", *CONTESTANTS):
        table.add_column(column, justify="right")
    for megabytes, best in results.items():
        table.add_row(
            f"{megabytes:g}", f"{lower_bound(options, megabytes):.4f}", *(f"{each:.4f}" for each in best.values())
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
