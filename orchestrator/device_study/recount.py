"""FLOPs and parameters of tables 4 and 5 of the paper, counted again from the networks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.device_study.published import BATCH, MISPRINTS, TABLE_4, TABLE_4_UNIT, TABLE_5, Misprint
from phone_agent.api.measure import build_study_network, three_pass_flops

TABLES = {4: ("fc", TABLE_4, TABLE_4_UNIT), 5: ("conv", TABLE_5, 1)}
_SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9}
_PRINTED = re.compile(r"(\d+)(?:\.(\d+))?([KMG])")


@dataclass(frozen=True)
class Cell:
    """`exact` has the unit of the table: the FLOPs of table 4 are those of 100 steps."""

    table: int
    family: str
    width: int
    depth: int
    column: str
    printed: str
    exact: int
    misprint: Misprint | None

    @property
    def agrees(self) -> bool:
        return matches(self.printed, self.exact)


def cells() -> Iterator[Cell]:
    for table, (family, printed, unit) in TABLES.items():
        for (width, depth), (flops, parameters) in printed.items():
            graph = build_study_network(family, width, depth)
            counted = {
                "flops": (flops, unit * three_pass_flops(graph, BATCH)),
                "parameters": (parameters, graph.parameter_count),
            }
            for column, (text, exact) in counted.items():
                yield Cell(table, family, width, depth, column, text, exact, _misprint(table, width, depth, column))


def matches(printed: str, exact: float) -> bool:
    """The paper rounds some numbers and truncates others: both match."""
    found = _PRINTED.fullmatch(printed)
    if found is None:
        raise ValueError(f"'{printed}' is not in the number format of the tables")
    whole, decimals, suffix = found.groups()
    scaled = exact / _SUFFIXES[suffix] * 10 ** len(decimals or "")
    return int(whole + (decimals or "")) in {math.floor(scaled), math.floor(scaled + 0.5)}


def format_like(printed: str, exact: float) -> str:
    """Formats `exact` like the printed cell: 1 866 626 826 240 next to 618G is 1866.6G."""
    suffix = printed[-1]
    return (
        f"{exact / _SUFFIXES[suffix]:,.4g}{suffix}"
        if exact < 1e3 * _SUFFIXES[suffix]
        else (f"{exact / _SUFFIXES[suffix]:.0f}{suffix}")
    )


def _misprint(table: int, width: int, depth: int, column: str) -> Misprint | None:
    key = (table, width, depth, column)
    found = (each for each in MISPRINTS if (each.table, each.width, each.depth, each.column) == key)
    return next(found, None)
