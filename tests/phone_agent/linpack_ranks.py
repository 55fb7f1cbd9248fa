"""Run under mpirun by test_linpack.py: solves systems on a grid; rank 0 prints the results."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from phone_agent.comm.world import abort_all_on_error, open_world
from phone_agent.linpack import bench
from phone_agent.linpack.matrix import Grid, System
from phone_agent.linpack.process_grid import ProcessGrid
from phone_agent.linpack.solution import residual

THREADS = 2


def solve(process_grid: ProcessGrid, n: int, block: int) -> dict[str, Any]:
    """The HPL residual, and the error relative to numpy."""
    system, single = System(n, block, process_grid.grid), System(n, block, Grid(1, 1))
    _, solution, _ = bench.solve(system, process_grid, THREADS)
    whole = single.local_matrix(0, 0)
    expected = np.linalg.solve(whole[:, :-1], whole[:, -1])
    error = float(np.abs(solution - expected).max() / np.abs(expected).max())
    return {"n": n, "nb": block, "residual": residual(system, process_grid, solution), "error": error}


def main() -> None:
    world = open_world()
    with abort_all_on_error(world):
        process_grid = ProcessGrid(Grid.parse(sys.argv[1], world.size))
        results = [solve(process_grid, *map(int, size.split("/"))) for size in sys.argv[2:]]
    if world.rank == 0:
        sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
