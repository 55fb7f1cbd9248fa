"""Run under mpirun by test_linpack.py: solves systems on a grid; rank 0 prints what came of each."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from phone_agent.comm.world import abort_all_on_error, open_world
from phone_agent.linpack import bench
from phone_agent.linpack.layout import Grid
from phone_agent.linpack.matrix import System
from phone_agent.linpack.process_grid import Mesh
from phone_agent.linpack.residual import residual

THREADS = 2


def solved(mesh: Mesh, n: int, block: int) -> dict[str, Any]:
    """By the benchmark's rule, and beside numpy's answer."""
    system, alone = System(n, block, mesh.grid), System(n, block, Grid(1, 1))
    _, answer, _ = bench.solve(system, mesh, THREADS)
    whole = alone.part(0, 0)
    want = np.linalg.solve(whole[:, :-1], whole[:, -1])
    off = float(np.abs(answer - want).max() / np.abs(want).max())
    return {"n": n, "nb": block, "residual": residual(system, mesh, answer), "off": off}


def main() -> None:
    world = open_world()
    with abort_all_on_error(world):
        mesh = Mesh(Grid.parse(sys.argv[1], world.size))
        told = [solved(mesh, *map(int, size.split("/"))) for size in sys.argv[2:]]
    if world.rank == 0:
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
