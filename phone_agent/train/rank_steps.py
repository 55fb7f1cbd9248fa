"""Results of one step on all ranks, in columns. A run may have thousands of ranks, and every rank evaluates the results
of all ranks after each step: one array operation per quantity takes microseconds, a loop over ranks milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from phone_agent.device.condition import Condition

Column = NDArray[np.float64]


class Request(IntEnum):
    """What rank 0 asks all ranks to do after the next step."""

    NONE = 0
    CHECKPOINT = 1  # write one
    YIELD = 2  # end the attempt: another one follows
    STOP = 3  # write a checkpoint and end


@dataclass(frozen=True)
class RankStep:
    """One rank's step. `comm_s`: how long computing waited for communication; `reduce_s`: its whole duration."""

    loss: float
    compute_s: float
    comm_s: float
    condition: Condition = field(default_factory=Condition)
    reduce_s: float = 0.0
    images: int = 1
    request: Request = Request.NONE  # of rank 0

    def to_row(self) -> Column:
        own = (self.loss, self.compute_s, self.comm_s, self.reduce_s, self.images, self.request)
        return np.array([*own, *astuple(self.condition)], np.float64)


class Conditions:
    """The conditions of all phones, by rank: a row each, with the fields of Condition as columns."""

    def __init__(self, rows: Column) -> None:
        self._rows = rows

    @classmethod
    def of(cls, conditions: Sequence[Condition]) -> Conditions:
        return cls(np.array([astuple(each) for each in conditions], np.float64))

    def __getitem__(self, rank: int) -> Condition:
        return Condition(*self._rows[rank].tolist())

    def column(self, name: str) -> Column:
        return self._rows[:, _CONDITION_FIELDS.index(name)]


_CONDITION_FIELDS = [each.name for each in fields(Condition)]


class RankSteps:
    """The steps of all ranks, by rank."""

    def __init__(self, rows: Column) -> None:
        self.loss, self.compute_s, self.comm_s, self.reduce_s, images, requests = rows[:, :6].T
        self.images = np.rint(images).astype(np.int64)
        self.request = Request(round(requests[0]))
        self.conditions = Conditions(rows[:, 6:])

    @classmethod
    def of(cls, steps: Sequence[RankStep]) -> RankSteps:
        return cls(np.array([step.to_row() for step in steps]))
