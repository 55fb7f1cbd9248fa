"""Gradient packing: all gradients in one allreduce against one MPI_Allreduce per parameter (Fig. 6 of the paper).

    python -m benchmarks.packing --phones 4

Starts its own lab and sums the gradients of each of the ten networks: packed with our ring, packed with MPI_Allreduce,
and chunkwise (one MPI_Allreduce per parameter). They take turns, and the best repeat of each counts. Exits with 1 if
chunkwise is faster than our packed ring for any network. The gain of packing for MPI_Allreduce alone is reported but
not checked, because it depends on which algorithms Open MPI selects.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from benchmarks.labs import clusterctl, lab
from benchmarks.networks import TABLE_I, network
from benchmarks.targets import Target, report_targets
from phone_agent.nn.packing import Packing, backward_order

ALGORITHMS = ("ring", "mpi", "chunkwise")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--models", nargs="+", default=list(TABLE_I), choices=list(TABLE_I))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each algorithm per round")
    options = parser.parse_args()
    with lab(options.phones, rate=options.rate):
        results = {model: race(model, options.rounds, options.repeats) for model in options.models}
    show(options, results)
    report_targets(targets(results))


def race(model: str, rounds: int, repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {algorithm: [] for algorithm in ALGORITHMS}
    for turn in range(rounds):
        for algorithm in ALGORITHMS if turn % 2 == 0 else reversed(ALGORITHMS):
            flags = ("--model", model, "--algorithm", algorithm, "--repeats", str(repeats))
            seconds[algorithm] += json.loads(clusterctl("bench", "allreduce", *flags, "--json"))["all_seconds"]
            print(f"{model}, {algorithm}: {min(seconds[algorithm]):.3f} s", file=sys.stderr)
    return {algorithm: min(each) for algorithm, each in seconds.items()}


def targets(results: dict[str, dict[str, float]]) -> Iterator[Target]:
    for model, best in results.items():
        yield Target(f"{model}: chunkwise time / packed ring time", best["chunkwise"] / best["ring"], ">=", 1)
        mpi_ratio = best["chunkwise"] / best["mpi"]
        yield Target(f"{model}: chunkwise time / packed MPI_Allreduce time", mpi_ratio, ">=", 1, "depends on Open MPI")


def show(options: argparse.Namespace, results: dict[str, dict[str, float]]) -> None:
    table = Table(
        title=f"seconds to sum the gradients of a network over {options.phones} phones, {options.rate} cables"
    )
    columns = (
        "network",
        "parameters",
        "MB",
        "packed, ring",
        "packed, MPI",
        "chunkwise",
        "chunkwise / ring",
        "chunkwise / MPI",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for model, best in results.items():
        packing = Packing(backward_order(network(model)))
        times = [f"{best[algorithm]:.3f}" for algorithm in ALGORITHMS]
        ratios = [f"{best['chunkwise'] / best[packed]:.2f}" for packed in ("ring", "mpi")]
        table.add_row(model, str(len(packing.slots)), f"{packing.size * 4 / 1e6:.1f}", *times, *ratios)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
