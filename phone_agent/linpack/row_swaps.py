"""Row swaps of a panel, applied to the columns to its right.

Its pivot rows are gathered on every process; the rows that they displace move to where the pivot rows came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.matrix import BlockCyclic
from phone_agent.linpack.panel import Panel

if TYPE_CHECKING:
    from phone_agent.linpack.process_grid import GridComm  # starts MPI

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class RowExchange:
    """All swaps of a panel combined: the row that becomes its i-th, and (target, source) of each displaced row."""

    pivots: list[int]
    displaced: list[tuple[int, int]]


def row_exchange(panel: Panel) -> RowExchange:
    source: dict[int, int] = {}
    for row, pivot in enumerate(panel.pivot_rows(), start=panel.start):
        source[row], source[pivot] = source.get(pivot, pivot), source.get(row, row)
    end = panel.start + panel.width
    pivots = [source[row] for row in range(panel.start, end)]
    return RowExchange(pivots, [(target, row) for target, row in sorted(source.items()) if target >= end])


class RowSwapper:
    """For one process: `matrix` is its local matrix, with the row layout `rows`."""

    def __init__(self, matrix: Doubles, rows: BlockCyclic, column_comm: GridComm) -> None:
        self._matrix, self._rows, self._column_comm = matrix, rows, column_comm

    def swap(self, panel: Panel, first: int) -> Doubles:
        """Swaps rows in the local columns from `first` on. Returns the pivot rows, which replace the panel rows."""
        exchange = row_exchange(panel)
        columns = self._matrix[:, first:]
        if self._column_comm.size == 1:
            pivots = columns[exchange.pivots]
            targets, sources = [target for target, _ in exchange.displaced], [row for _, row in exchange.displaced]
            columns[targets] = columns[sources]
            return pivots
        pivots = self._gather_pivots(exchange, columns)
        self._move_displaced(exchange, columns, self._rows.owner(panel.start))
        return pivots

    def _gather_pivots(self, exchange: RowExchange, columns: Doubles) -> Doubles:
        by_rank = [self._owned_by(rank, exchange.pivots) for rank in range(self._column_comm.size)]
        own = columns[[self._rows.local(exchange.pivots[index]) for index in by_rank[self._column_comm.rank]]]
        received = np.empty((len(exchange.pivots), columns.shape[1]))
        self._column_comm.gather_rows(own, [len(indices) for indices in by_rank], received)
        pivots = np.empty_like(received)
        pivots[[index for indices in by_rank for index in indices]] = received
        return pivots

    def _owned_by(self, rank: int, rows: list[int]) -> list[int]:
        """Positions in `rows` of the rows that the process owns."""
        return [index for index, row in enumerate(rows) if self._rows.owner(row) == rank]

    def _move_displaced(self, exchange: RowExchange, columns: Doubles, owner: int) -> None:
        """The owner of the diagonal block has all displaced rows."""
        targets = [target for target, _ in exchange.displaced]
        if self._column_comm.rank != owner:
            own = self._owned_by(self._column_comm.rank, targets)
            if own:
                received = np.empty((len(own), columns.shape[1]))
                self._column_comm.receive(received, owner).wait()
                columns[[self._rows.local(targets[index]) for index in own]] = received
            return
        by_rank = [self._owned_by(rank, targets) for rank in range(self._column_comm.size)]
        rows = [columns[[self._rows.local(exchange.displaced[index][1]) for index in indices]] for indices in by_rank]
        requests = [
            self._column_comm.send(rows[rank], rank)
            for rank, indices in enumerate(by_rank)
            if indices and rank != owner
        ]
        columns[[self._rows.local(targets[index]) for index in by_rank[owner]]] = rows[owner]
        for request in requests:
            request.wait()
