"""Size and process grid of a LINPACK run."""

from __future__ import annotations

from phone_agent.linpack.layout import DEFAULT_BLOCK, Grid, GridError
from phone_agent.linpack.matrix import System
from phone_agent.linpack.memory import TooLargeError, check_fits, default_n, largest_n

__all__ = [
    "DEFAULT_BLOCK",
    "Grid",
    "GridError",
    "System",
    "TooLargeError",
    "check_fits",
    "default_n",
    "largest_n",
]
