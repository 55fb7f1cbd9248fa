"""Do four phones train as one process does? Ten networks, the same global batch, five steps: the losses.

    python -m benchmarks.correctness

Phones are threads of this process: their loops, the overlap, the rings and the sums are a phone's, only the cables
between them are memory. Each network is narrow and reads small images, as in the tests whose helpers these are. Every
phone normalises by its own batch, which no process with the whole batch does; so the one process takes the phones'
batches in turn, and adds up the gradients in the order of the ring. Then nothing but where it is computed differs.

Four of the networks do not normalise. There, with nothing dropped, one process also computes the whole global batch at
once, and adds in whatever order that brings. Ends with 1 where losses differ by more than float32 rounds to (1.2e-7).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.verdict import Promise, conclude
from phone_agent.nn.graph import Dropout, Graph, Node
from tests.agent.together import TEN, Setting, alone, network, together

EQUAL, UNEQUAL = (4, 4, 4, 4), (6, 3, 5, 2)
AT_ONCE = 3  # images: phones compute the larger of the unequal batches in parts
ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Case:
    name: str
    phones: Setting
    process: Setting

    def apart(self) -> float:
        """The largest difference of a step's loss, on any phone, relative to the one process's."""
        wanted = np.array(alone(self.process).losses)
        found = np.array([result.losses for result in together(self.phones)])
        return float(np.max(np.abs(found - wanted) / np.abs(wanted)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(TEN), choices=list(TEN))
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    found = {model: dict(race(model, options.steps)) for model in options.models}
    show(found)
    conclude(promise for of_model in found.values() for promise in of_model.values())


def race(model: str, steps: int) -> Iterator[tuple[str, Promise]]:
    for case in cases(network(model), steps):
        promise = Promise(f"{model}, {case.name}: losses differ by", case.apart(), "<=", ROUNDING)
        print(promise, file=sys.stderr)
        yield case.name, promise


def cases(graph: Graph, steps: int) -> Iterator[Case]:
    equal, unequal = Setting(graph, EQUAL, steps=steps), Setting(graph, UNEQUAL, largest=AT_ONCE, steps=steps)
    yield Case("equal batches", equal, equal)
    yield Case("unequal batches", unequal, unequal)
    if not any(node.statistics for node in graph.nodes):
        whole = replace(graph, nodes=tuple(map(_dropping_nothing, graph.nodes)))
        unequal, process = replace(unequal, graph=whole), Setting(whole, (sum(UNEQUAL),), steps=steps)
        yield Case("global batch at once", unequal, process)


def _dropping_nothing(node: Node) -> Node:
    return replace(node, layer=Dropout(0.0)) if isinstance(node.layer, Dropout) else node


def show(found: dict[str, dict[str, Promise]]) -> None:
    names = list(dict.fromkeys(name for of_model in found.values() for name in of_model))
    table = Table(title=f"{len(EQUAL)} phones against one process: largest relative difference of losses")
    for column in ("network", *names):
        table.add_column(column, justify="left" if column == "network" else "right")
    for model, of_model in found.items():
        table.add_row(model, *(f"{of_model[name].value:.1e}" if name in of_model else "" for name in names))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
