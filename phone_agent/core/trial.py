"""Does the core work here? A product of small whole numbers, which must come out exactly."""

from __future__ import annotations

import ctypes

import numpy as np

from phone_agent.core import ops
from phone_agent.core.team import Program, Team, workspace_bytes

THREADS = 2
ROWS, INNER, COLUMNS = 37, 19, 21  # of no vector's size


def multiplies(isa: str) -> bool:
    a = (np.arange(ROWS * INNER, dtype=np.float32).reshape(ROWS, INNER) % 7) - 3
    b = (np.arange(INNER * COLUMNS, dtype=np.float32).reshape(INNER, COLUMNS) % 5) - 2
    c = np.full((ROWS, COLUMNS), np.nan, np.float32)
    op = ops.ConvForward()
    op.g = ops.Geometry(ROWS, 1, 1, INNER, 1, 1, COLUMNS, 1, 1, 1, 0, 0, 1, 1)
    op.x = ops.Source(a.ctypes.data, None, None, INNER, ops.Act.NONE)
    op.weights, op.y, op.ld_y = b.ctypes.data, c.ctypes.data, COLUMNS
    made: list[tuple[ops.Kind, ctypes.Structure]] = [(ops.Kind.CONV_FORWARD, op)]
    team = Team(THREADS, isa, workspace_bytes(THREADS, made, isa))
    team.run(Program.of(made))
    team.close()
    return bool((c == a @ b).all())
