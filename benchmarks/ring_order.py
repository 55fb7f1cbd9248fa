"""What is it worth that the ring follows the switches?

    python -m benchmarks.ring_order --phones 12 --switches 3 --rounds 4

Brings up a lab of its own, provisions it, and times the same allreduce in the inventory's order (every uplink carries
one flow a direction) and interleaved (almost every hop crosses an uplink), in turns; the best round of each counts.
All phones share this computer's cores, so the links are made slower than a rack's until they, and not the cores, set
the pace; look at ring order's share of the line rate to see whether they do. By count of flows on the busiest uplink
12 phones on 3 switches differ by 4. With --rate 200mbit on two busy cores ring order reached 37 % of the line rate,
and the ratio was 1.8.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.labs import clusterctl, lab

ORDERS = ("ring", "interleaved")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=12)
    parser.add_argument("--switches", type=int, default=3)
    parser.add_argument("--rate", default="50mbit", help="of the phones' links and of the uplinks")
    parser.add_argument("--mb", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with lab(options.phones, options.switches, options.rate):
        best = race(options.mb, options.rounds)
    show(options, best)


def race(megabytes: float, rounds: int) -> dict[str, dict[str, Any]]:
    best: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for order in ORDERS:
            found = allreduce(megabytes, order)
            if order not in best or found["seconds"] < best[order]["seconds"]:
                best[order] = found
    return best


def allreduce(megabytes: float, order: str) -> dict[str, Any]:
    flags = ("--mb", str(megabytes), "--order", order, "--repeats", "1", "--json")
    found: dict[str, Any] = json.loads(clusterctl("bench", "allreduce", *flags))
    if not found["correct"]:
        sys.exit(f"the sums in {order} order are wrong")
    return found


def show(options: argparse.Namespace, best: dict[str, dict[str, Any]]) -> None:
    title = f"{options.mb:g} MB over {options.phones} phones on {options.switches} switches, {options.rate} links"
    table = Table(title=title)
    for column in ("order", "seconds", "of line rate"):
        table.add_column(column, justify="left" if column == "order" else "right")
    for order, found in best.items():
        table.add_row(order, f"{found['seconds']:.3f}", f"{found['line_rate_fraction']:.0%}")
    console = Console()
    console.print(table)
    ratio = best["interleaved"]["seconds"] / best["ring"]["seconds"]
    console.print(f"following the switches is {ratio:.1f} times faster")


if __name__ == "__main__":
    main()
