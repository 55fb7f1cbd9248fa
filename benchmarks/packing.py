"""What is packing worth? All gradients in one allreduce, or one MPI_Allreduce a parameter (the paper's Fig. 6).

    python -m benchmarks.packing --phones 4

Brings up a lab of its own and sums each of the ten networks' real lists of gradients: packed with our ring, packed
with MPI_Allreduce, and chunkwise. They take turns; the best repeat of each counts. Ends with 1 where our way, packed
and by our ring, does not pay: for no network may one call a parameter be faster. What packing alone does for
MPI_Allreduce is told beside it, and not judged: that is Open MPI's choice of algorithms.
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
from benchmarks.verdict import Promise, conclude
from phone_agent.nn.packing import Packing, backward_order

ALGORITHMS = ("ring", "mpi", "chunkwise")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--models", nargs="+", default=list(TABLE_I), choices=list(TABLE_I))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="of each in a round")
    options = parser.parse_args()
    with lab(options.phones, rate=options.rate):
        found = {model: race(model, options.rounds, options.repeats) for model in options.models}
    show(options, found)
    conclude(promises(found))


def race(model: str, rounds: int, repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {algorithm: [] for algorithm in ALGORITHMS}
    for turn in range(rounds):
        for algorithm in ALGORITHMS if turn % 2 == 0 else reversed(ALGORITHMS):
            flags = ("--model", model, "--algorithm", algorithm, "--repeats", str(repeats))
            seconds[algorithm] += json.loads(clusterctl("bench", "allreduce", *flags, "--json"))["all_seconds"]
            print(f"{model}, {algorithm}: {min(seconds[algorithm]):.3f} s", file=sys.stderr)
    return {algorithm: min(each) for algorithm, each in seconds.items()}


def promises(found: dict[str, dict[str, float]]) -> Iterator[Promise]:
    for model, best in found.items():
        yield Promise(f"{model}: chunkwise's time to the packed ring's", best["chunkwise"] / best["ring"], ">=", 1)
        of_mpi = best["chunkwise"] / best["mpi"]
        yield Promise(f"{model}: chunkwise's time to packed MPI_Allreduce's", of_mpi, ">=", 1, "not ours")


def show(options: argparse.Namespace, found: dict[str, dict[str, float]]) -> None:
    table = Table(title=f"seconds to sum a network's gradients over {options.phones} phones, {options.rate} cables")
    columns = ("network", "parameters", "MB", "packed, ring", "packed, MPI", "chunkwise", "to ring", "to MPI")
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for model, best in found.items():
        packing = Packing(backward_order(network(model)))
        times = [f"{best[algorithm]:.3f}" for algorithm in ALGORITHMS]
        ratios = [f"{best['chunkwise'] / best[packed]:.2f}" for packed in ("ring", "mpi")]
        table.add_row(model, str(len(packing.slots)), f"{packing.size * 4 / 1e6:.1f}", *times, *ratios)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
