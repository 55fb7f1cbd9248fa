"""`python -m phone_agent.core`: build the core if necessary, test it, and print the instruction sets usable here."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from phone_agent.contract.errors import AgentError, error_line
from phone_agent.core import ops
from phone_agent.core.library import CoreError, isas, library
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


def main() -> int:
    try:
        names = isas(library())
        wrong = [isa for isa in names if not gemm_is_exact(isa)]
        if wrong:
            raise CoreError(f"the core's kernels give wrong results: {', '.join(wrong)}")
    except AgentError as error:
        sys.stderr.write(error_line(error) + "\n")
        return 1
    sys.stdout.write(", ".join(names) + "\n")
    return 0


sys.exit(main())
