"""Memory estimate for the phone that needs the most, known before the run."""

from __future__ import annotations

from math import sqrt

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_size
from phone_agent.linpack.matrix import CHUNK, Grid, System

DOUBLE_BYTES = 8
PANELS = 2 + 1  # the current one, the next one, and the current one packed for the product
PIVOT_ROWS = 5  # gathered, reordered, sent, displaced, received
PROCESS_BYTES = 80_000_000  # Python, numpy, MPI
PACKED_COLUMNS = 2048  # of the right operand of the product
GENERATE_BYTES = 6 * DOUBLE_BYTES * CHUNK  # temporary, while random values are generated
DEFAULT_N = 2048  # for one phone: a matrix of 34 MB


class TooLargeError(AgentError):
    """The system does not fit the memory of the phones."""

    code = ErrorCode.OUT_OF_MEMORY


def required_bytes(n: int, block: int, grid: Grid) -> int:
    """On grid position (0, 0), which needs the most."""
    rows, columns = System(n, block, grid).shape(0, 0)
    block = min(block, n)
    buffers = PANELS * block * (rows + block) + PIVOT_ROWS * block * columns + block * PACKED_COLUMNS
    return PROCESS_BYTES + GENERATE_BYTES + DOUBLE_BYTES * (rows * columns + buffers)


def largest_n(memory: int, block: int, grid: Grid) -> int:
    """The largest n that fits `memory` bytes per phone; 0 if none does."""
    fits, too_many = 0, 1
    while required_bytes(too_many, block, grid) <= memory:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if required_bytes(middle, block, grid) <= memory else (fits, middle)
    return fits


def default_n(block: int, grid: Grid, memory: int | None) -> int:
    """Constant matrix size per phone (weak scaling), limited by the memory available."""
    n = round(DEFAULT_N * sqrt(grid.size))
    return n if memory is None else min(n, largest_n(memory, block, grid))


def check_fits(n: int, block: int, grid: Grid, memory: int, phone: str) -> None:
    if (required := required_bytes(n, block, grid)) > memory:
        raise TooLargeError(
            f"n = {n} needs {format_size(required)} per phone, but {phone} has {format_size(memory)} free; "
            f"the largest n that fits is {largest_n(memory, block, grid)}"
        )
