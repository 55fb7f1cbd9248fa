"""What a run takes on the phone that holds most, known before it begins."""

from __future__ import annotations

from math import sqrt

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.sizes import format_size
from phone_agent.linpack.layout import Grid
from phone_agent.linpack.matrix import CHUNK, System

NUMBER = 8
PANELS = 2 + 1  # one used, one under way, and the one used packed for the product
PIVOT_ROWS = 5  # gathered, put in order, sent, pushed out, pushed in
PROCESS = 80_000_000  # Python, numpy, MPI
PACKED_COLUMNS = 2048  # of the product's right side
MADE = 6 * NUMBER * CHUNK  # random numbers while they are made
USUAL_PER_PHONE = 2048  # n for one phone: the matrix then takes 34 MB of each


class TooLargeError(AgentError):
    """More equations than the phones' memory holds."""

    code = ErrorCode.OUT_OF_MEMORY


def needed(n: int, block: int, grid: Grid) -> int:
    """Bytes; grid position (0, 0) has the most of everything."""
    rows, columns = System(n, block, grid).shape(0, 0)
    block = min(block, n)
    beside = PANELS * block * (rows + block) + PIVOT_ROWS * block * columns + block * PACKED_COLUMNS
    return PROCESS + MADE + NUMBER * (rows * columns + beside)


def largest_n(memory: int, block: int, grid: Grid) -> int:
    """The most equations that fit into so many bytes of each phone; 0 where not even one does."""
    fits, too_many = 0, 1
    while needed(too_many, block, grid) <= memory:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if needed(middle, block, grid) <= memory else (fits, middle)
    return fits


def default_n(block: int, grid: Grid, memory: int | None) -> int:
    """As much for each phone, however many there are; less where memory is short."""
    n = round(USUAL_PER_PHONE * sqrt(grid.size))
    return n if memory is None else min(n, largest_n(memory, block, grid))


def check_fits(n: int, block: int, grid: Grid, memory: int, whose: str) -> None:
    if (wanted := needed(n, block, grid)) > memory:
        raise TooLargeError(
            f"n = {n} takes {format_size(wanted)} of each phone, and {whose} has {format_size(memory)} free; "
            f"the largest n that fits is {largest_n(memory, block, grid)}"
        )
