"""From the matrix to a triangle, panel by panel."""

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
from phone_agent.linpack.panel import Factoring, Panel, unit_lower
from phone_agent.linpack.row_swaps import Swapper

if TYPE_CHECKING:
    from phone_agent.comm.mpi import MpiRequest
    from phone_agent.linpack.process_grid import Mesh  # starts MPI

Doubles = NDArray[np.float64]
SOLVED_AT_ONCE = 64  # rows of U
UPDATED_AT_ONCE = 1024  # columns, while a panel travels: then MPI is called


class Phases:
    """Seconds by what they were spent on."""

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


class Elimination:
    """One process's part of it. The rows below the triangle are left as they were when nobody needed them any more."""

    def __init__(self, system: System, mesh: Mesh, part: Doubles, kernels: Kernels, phases: Phases) -> None:
        self._system, self._mesh, self._part = system, mesh, part
        self._kernels, self._phases = kernels, phases
        self._held = system.rows.held(mesh.row)
        self._swapper = Swapper(part, system.rows, mesh.down)
        self._rooms = [Panel.room(min(system.block, system.n), len(part)) for _ in range(2)]

    def run(self) -> None:
        panel, travelling = self._next(0)
        while True:
            with self._phases.of("broadcast"):
                travelling.wait()
            following = panel.start + panel.width
            first = self._system.columns.count(self._mesh.column, before=following)
            right = self._pivot_rows(panel, first)
            below = self._system.rows.count(self._mesh.row, before=following)
            left = panel.low[:, panel.low.shape[1] - (len(self._part) - below) :]
            rest = self._part[below:, first:]
            if following >= self._system.n:
                return
            ahead = self._columns_of(following)
            self._update(rest[:, :ahead], left, right[:, :ahead])
            panel, travelling = self._next(following)
            self._update(rest[:, ahead:], left, right[:, ahead:], travelling)

    def _columns_of(self, start: int) -> int:
        """How many columns this process has of the panel that starts there."""
        columns, end = self._system.columns, min(start + self._system.block, self._system.n)
        return columns.count(self._mesh.column, before=end) - columns.count(self._mesh.column, before=start)

    def _next(self, start: int) -> tuple[Panel, MpiRequest]:
        """Factored where its columns are, on its way to the others."""
        system, mesh = self._system, self._mesh
        width = min(system.block, system.n - start)
        above = system.rows.count(mesh.row, before=start)
        panel = Panel(self._rooms[start // system.block % 2], start, width, len(self._part) - above)
        owner, here = system.rows.owner(start), system.columns.owner(start)
        if mesh.column == here:
            with self._phases.of("panel"):
                first = system.columns.local(start)
                panel.low[:] = self._part[above:, first : first + width].T
                Factoring(panel, self._held[above:], mesh.down, self._kernels, owner=owner).run()
                if mesh.row == owner:
                    self._part[above : above + width, first : first + width] = panel.top
        return panel, mesh.across.broadcast(panel.buffer, here)

    def _pivot_rows(self, panel: Panel, first: int) -> Doubles:
        """U beside the panel, also put where it belongs."""
        if first == self._part.shape[1]:
            return np.empty((panel.width, 0))
        with self._phases.of("swap"):
            right = self._swapper.swap(panel, first)
        with self._phases.of("solve"):
            self._solve(panel, right)
            if self._mesh.row == self._system.rows.owner(panel.start):
                above = self._system.rows.local(panel.start)
                self._part[above : above + panel.width, first:] = right
        return right

    def _solve(self, panel: Panel, right: Doubles) -> None:
        """right = L^-1 right; L lies in `top`, transposed for the product."""
        turned = np.ascontiguousarray(panel.top.T)
        for start in range(0, panel.width, SOLVED_AT_ONCE):
            end = min(start + SOLVED_AT_ONCE, panel.width)
            if start:
                self._kernels.subtract(right[start:end], turned[:start, start:end], right[:start])
            inverse = np.linalg.inv(unit_lower(panel.top[start:end, start:end]))
            self._kernels.store(right[start:end], np.ascontiguousarray(inverse.T), right[start:end].copy())

    def _update(self, rest: Doubles, left: Doubles, right: Doubles, travelling: MpiRequest | None = None) -> None:
        if not rest.size:
            return
        step = rest.shape[1] if travelling is None or travelling.done() else UPDATED_AT_ONCE
        with self._phases.of("update"):
            for column in range(0, rest.shape[1], step):
                part = slice(column, column + step)
                self._kernels.subtract(rest[:, part], left, right[:, part])
                if travelling is not None:
                    travelling.done()
        self._phases.update_flops += 2.0 * rest.size * len(right)
