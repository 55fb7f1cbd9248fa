"""Who holds what: a grid of processes, and blocks of rows and columns dealt out over it in turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract.errors import AgentError, ErrorCode

USUAL_BLOCK = 128


class GridError(AgentError):
    """Not a grid for so many phones."""

    code = ErrorCode.BAD_REQUEST


@dataclass(frozen=True)
class Grid:
    """Ranks lie row by row: neighbours in a row of the grid are neighbours in the hostfile."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def place(self, rank: int) -> tuple[int, int]:
        return divmod(rank, self.columns)

    @classmethod
    def nearly_square(cls, size: int) -> Grid:
        """No more rows than columns: pivots are agreed upon among rows, one message a column of the matrix."""
        rows = next(rows for rows in range(isqrt(size), 0, -1) if size % rows == 0)
        return cls(rows, size // rows)

    @classmethod
    def parse(cls, text: str, size: int) -> Grid:
        match = re.fullmatch(r"([1-9]\d{0,5})[xX]([1-9]\d{0,5})", text)
        if match is None:
            raise GridError(f"'{text}' is not a grid; write rows and columns like 2x3")
        grid = cls(int(match[1]), int(match[2]))
        if grid.size != size:
            fit = ", ".join(f"{rows}x{size // rows}" for rows in range(1, size + 1) if size % rows == 0)
            raise GridError(f"a grid of {grid} takes {grid.size} phones, there are {size}; these would do: {fit}")
        return grid


@dataclass(frozen=True)
class Dealt:
    """`size` rows (or columns) in blocks of `block`, dealt out to `parts`."""

    size: int
    block: int
    parts: int

    def owner(self, index: int) -> int:
        return index // self.block % self.parts

    def count(self, part: int, before: int | None = None) -> int:
        """How many of those below `before` the part has: also where the next one lies in its own memory."""
        blocks, rest = divmod(self.size if before is None else before, self.block)
        rounds, extra = divmod(blocks, self.parts)
        return rounds * self.block + (self.block if part < extra else rest if part == extra else 0)

    def local(self, index: int) -> int:
        """Where its owner has it."""
        return index // (self.block * self.parts) * self.block + index % self.block

    def held(self, part: int) -> NDArray[np.int64]:
        """All that the part has, in its own order."""
        own = np.arange(self.count(part))
        return (own // self.block * self.parts + part) * self.block + own % self.block
