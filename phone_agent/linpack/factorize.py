"""LU factorization, panel by panel, with lookahead."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phone_agent.linpack.kernels import Kernels
from phone_agent.linpack.matrix import System
from phone_agent.linpack.panel import Panel, PanelFactorization, unit_lower
from phone_agent.linpack.row_swaps import RowSwapper

if TYPE_CHECKING:
    from phone_agent.comm.mpi import MpiRequest
    from phone_agent.linpack.process_grid import ProcessGrid  # starts MPI

Doubles = NDArray[np.float64]
SOLVE_ROWS = 64  # rows of U per triangular solve
UPDATE_COLUMNS = 1024  # between MPI progress calls while a panel is being broadcast


class Phases:
    """Seconds per phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.update_flops = 0.0

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started


class Factorization:
    """The part of one process. Values below the diagonal are not final: nothing reads them later."""

    def __init__(
        self, system: System, process_grid: ProcessGrid, part: Doubles, kernels: Kernels, phases: Phases
    ) -> None:
        self._system, self._process_grid, self._part = system, process_grid, part
        self._kernels, self._phases = kernels, phases
        self._row_indices = system.rows.global_indices(process_grid.row)
        self._swapper = RowSwapper(part, system.rows, process_grid.column_comm)
        self._buffers = [Panel.allocate(min(system.block, system.n), len(part)) for _ in range(2)]

    def run(self) -> None:
        panel, broadcast = self._factor_panel(0)
        while True:
            with self._phases.of("broadcast"):
                broadcast.wait()
            next_start = panel.start + panel.width
            first = self._system.columns.count(self._process_grid.column, before=next_start)
            right = self._compute_u(panel, first)
            below = self._system.rows.count(self._process_grid.row, before=next_start)
            left = panel.lower[:, panel.lower.shape[1] - (len(self._part) - below) :]
            trailing = self._part[below:, first:]
            if next_start >= self._system.n:
                return
            lookahead = self._panel_columns(next_start)
            self._update(trailing[:, :lookahead], left, right[:, :lookahead])
            panel, broadcast = self._factor_panel(next_start)
            self._update(trailing[:, lookahead:], left, right[:, lookahead:], broadcast)

    def _panel_columns(self, start: int) -> int:
        """How many columns of the panel at `start` this process has."""
        columns, end = self._system.columns, min(start + self._system.block, self._system.n)
        return columns.count(self._process_grid.column, before=end) - columns.count(
            self._process_grid.column, before=start
        )

    def _factor_panel(self, start: int) -> tuple[Panel, MpiRequest]:
        """Factors the panel on the grid column that owns it, and starts its broadcast along the rows."""
        system, process_grid = self._system, self._process_grid
        width = min(system.block, system.n - start)
        above = system.rows.count(process_grid.row, before=start)
        panel = Panel(self._buffers[start // system.block % 2], start, width, len(self._part) - above)
        owner_row, owner_column = system.rows.owner(start), system.columns.owner(start)
        if process_grid.column == owner_column:
            with self._phases.of("panel"):
                first = system.columns.local(start)
                panel.lower[:] = self._part[above:, first : first + width].T
                PanelFactorization(
                    panel, self._row_indices[above:], process_grid.column_comm, self._kernels, owner=owner_row
                ).run()
                if process_grid.row == owner_row:
                    self._part[above : above + width, first : first + width] = panel.top
        return panel, process_grid.row_comm.broadcast(panel.buffer, owner_column)

    def _compute_u(self, panel: Panel, first: int) -> Doubles:
        """The block row of U next to the panel, also stored in the matrix."""
        if first == self._part.shape[1]:
            return np.empty((panel.width, 0))
        with self._phases.of("swap"):
            right = self._swapper.swap(panel, first)
        with self._phases.of("solve"):
            self._solve(panel, right)
            if self._process_grid.row == self._system.rows.owner(panel.start):
                above = self._system.rows.local(panel.start)
                self._part[above : above + panel.width, first:] = right
        return right

    def _solve(self, panel: Panel, right: Doubles) -> None:
        """right = L^-1 right; `top` holds L, transposed here for the product."""
        transposed = np.ascontiguousarray(panel.top.T)
        for start in range(0, panel.width, SOLVE_ROWS):
            end = min(start + SOLVE_ROWS, panel.width)
            if start:
                self._kernels.subtract(right[start:end], transposed[:start, start:end], right[:start])
            inverse = np.linalg.inv(unit_lower(panel.top[start:end, start:end]))
            self._kernels.store(right[start:end], np.ascontiguousarray(inverse.T), right[start:end].copy())

    def _update(self, trailing: Doubles, left: Doubles, right: Doubles, broadcast: MpiRequest | None = None) -> None:
        if not trailing.size:
            return
        step = trailing.shape[1] if broadcast is None or broadcast.done() else UPDATE_COLUMNS
        with self._phases.of("update"):
            for column in range(0, trailing.shape[1], step):
                part = slice(column, column + step)
                self._kernels.subtract(trailing[:, part], left, right[:, part])
                if broadcast is not None:
                    broadcast.done()
        self._phases.update_flops += 2.0 * trailing.size * len(right)
