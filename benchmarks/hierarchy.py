"""Which allreduce for several switches with thin cables between them?

    python -m benchmarks.hierarchy --phones 6 --switches 3 --rate 1gbit --uplink 200mbit

Brings up a lab of its own, switches in a row, and lets the algorithms take turns for a small and a large buffer; the
best repeat of each counts. The least time is what the busiest cable allows: a phone's own, or, with S switches, one
between them, which has to carry 2 (S - 1) / S of the buffer in each direction. Ends with 1 where hierarchical is not
faster than the ring and MPI_Allreduce for a large buffer; of a small one, latency decides.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.labs import clusterctl, lab
from benchmarks.verdict import Promise, conclude
from orchestrator.plan.link_rate import bytes_per_second

LARGE = 25.0  # MB: from here on the cables between switches set the pace
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
    parser.add_argument("--repeats", type=int, default=3, help="of each in a round")
    options = parser.parse_args()
    with lab(options.phones, options.switches, options.rate, options.uplink):
        found = {megabytes: race(megabytes, options.rounds, options.repeats) for megabytes in options.sizes}
    show(options, found)
    conclude(promises(found))


def race(megabytes: float, rounds: int, repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(rounds):
        for name in list(CONTESTANTS) if turn % 2 == 0 else reversed(CONTESTANTS):
            flags = ("--mb", str(megabytes), *CONTESTANTS[name], "--repeats", str(repeats))
            seconds[name] += json.loads(clusterctl("bench", "allreduce", *flags, "--json"))["all_seconds"]
            print(f"{megabytes:g} MB, {name}: {min(seconds[name]):.4f} s", file=sys.stderr)
    return {name: min(each) for name, each in seconds.items()}


def promises(found: dict[float, dict[str, float]]) -> Iterator[Promise]:
    for megabytes, best in found.items():
        excuse = "" if megabytes >= LARGE else f"less than {LARGE:g} MB"
        for other in OTHERS:
            ratio = best[other] / best["hierarchical"]
            yield Promise(f"{megabytes:g} MB: {other}'s time to hierarchical's", ratio, ">", 1, excuse)


def least(options: argparse.Namespace, megabytes: float) -> float:
    phones: float = 2 * (options.phones - 1) / options.phones / bytes_per_second(options.rate)
    uplinks: float = 2 * (options.switches - 1) / options.switches / bytes_per_second(options.uplink)
    return float(max(phones, uplinks) * megabytes * 1e6)


def show(options: argparse.Namespace, found: dict[float, dict[str, float]]) -> None:
    cables = f"{options.rate} cables, {options.uplink} between switches"
    table = Table(title=f"seconds to sum over {options.phones} phones on {options.switches} switches, {cables}")
    for column in ("MB", "least", *CONTESTANTS):
        table.add_column(column, justify="right")
    for megabytes, best in found.items():
        table.add_row(f"{megabytes:g}", f"{least(options, megabytes):.4f}", *(f"{each:.4f}" for each in best.values()))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
