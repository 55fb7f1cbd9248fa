"""The swaps a panel asks for, done to the columns beside it.

Its pivot rows go to everybody, the rows they push out to where those came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.layout import Dealt
from phone_agent.linpack.panel import Panel

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import Line  # starts MPI

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Moves:
    """All swaps of a panel at once: which row becomes its i-th, and (place, row) of those pushed out."""

    pivots: list[int]
    pushed: list[tuple[int, int]]


def moves(panel: Panel) -> Moves:
    at: dict[int, int] = {}
    for row, pivot in enumerate(panel.swaps(), start=panel.start):
        at[row], at[pivot] = at.get(pivot, pivot), at.get(row, row)
    end = panel.start + panel.width
    pivots = [at[row] for row in range(panel.start, end)]
    return Moves(pivots, [(place, row) for place, row in sorted(at.items()) if place >= end])


class Swapper:
    """Of one process: `part` is its share of the matrix, whose rows are dealt out as `rows` says."""

    def __init__(self, part: Doubles, rows: Dealt, down: Line) -> None:
        self._part, self._rows, self._down = part, rows, down

    def swap(self, panel: Panel, first: int) -> Doubles:
        """Columns `first` .. of this process; returns the pivot rows, which belong where the panel's rows are."""
        moved = moves(panel)
        columns = self._part[:, first:]
        if self._down.size == 1:
            pivots = columns[moved.pivots]
            places, rows = [place for place, _ in moved.pushed], [row for _, row in moved.pushed]
            columns[places] = columns[rows]
            return pivots
        pivots = self._gather(moved, columns)
        self._push(moved, columns, self._rows.owner(panel.start))
        return pivots

    def _gather(self, moved: Moves, columns: Doubles) -> Doubles:
        held = [self._of(place, moved.pivots) for place in range(self._down.size)]
        own = columns[[self._rows.local(moved.pivots[index]) for index in held[self._down.place]]]
        arrived = np.empty((len(moved.pivots), columns.shape[1]))
        self._down.gather_rows(own, [len(part) for part in held], arrived)
        pivots = np.empty_like(arrived)
        pivots[[index for part in held for index in part]] = arrived
        return pivots

    def _of(self, place: int, rows: list[int]) -> list[int]:
        """Which of the rows that process has."""
        return [index for index, row in enumerate(rows) if self._rows.owner(row) == place]

    def _push(self, moved: Moves, columns: Doubles, owner: int) -> None:
        """All rows pushed out were the owner's of the diagonal block."""
        targets = [place for place, _ in moved.pushed]
        if self._down.place != owner:
            mine = self._of(self._down.place, targets)
            if mine:
                arrived = np.empty((len(mine), columns.shape[1]))
                self._down.receive(arrived, owner).wait()
                columns[[self._rows.local(targets[index]) for index in mine]] = arrived
            return
        parts = [(place, self._of(place, targets)) for place in range(self._down.size)]
        rows = [columns[[self._rows.local(moved.pushed[index][1]) for index in part]] for _, part in parts]
        sent = [
            self._down.send(some, place)
            for (place, part), some in zip(parts, rows, strict=True)
            if part and place != owner
        ]
        columns[[self._rows.local(targets[index]) for index in parts[owner][1]]] = rows[owner]
        for request in sent:
            request.wait()
