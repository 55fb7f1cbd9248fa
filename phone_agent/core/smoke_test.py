"""Smoke test of the core: a product of matrices of small integers, which must be exact."""

from __future__ import annotations

import ctypes

import numpy as np

from phone_agent.core import ops
from phone_agent.core.thread_pool import Program, ThreadPool, workspace_bytes

THREADS = 2
ROWS, DEPTH, COLUMNS = 37, 19, 21  # none is a multiple of a vector length


def gemm_is_exact(isa: str) -> bool:
    a = (np.arange(ROWS * DEPTH, dtype=np.float32).reshape(ROWS, DEPTH) % 7) - 3
    b = (np.arange(DEPTH * COLUMNS, dtype=np.float32).reshape(DEPTH, COLUMNS) % 5) - 2
    c = np.full((ROWS, COLUMNS), np.nan, np.float32)
    op = ops.ConvForward()
    op.g = ops.Geometry(ROWS, 1, 1, DEPTH, 1, 1, COLUMNS, 1, 1, 1, 0, 0, 1, 1)
    op.x = ops.FusedInput(a.ctypes.data, None, None, DEPTH, ops.Act.NONE)
    op.weights, op.y, op.ld_y = b.ctypes.data, c.ctypes.data, COLUMNS
    made: list[tuple[ops.Kind, ctypes.Structure]] = [(ops.Kind.CONV_FORWARD, op)]
    pool = ThreadPool(THREADS, isa, workspace_bytes(THREADS, made, isa))
    pool.run(Program.of(made))
    pool.close()
    return bool((c == a @ b).all())
