"""What the ranks tell each other each step, in one small exchange; rank 0 makes the run's step event of it."""

from __future__ import annotations

import math
import time
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from phone_agent.comm.world import World
from phone_agent.device import thermal
from phone_agent.errors import AgentError
from phone_agent.nn.packing import State
from phone_agent.schema import RankSpec, RunSpec

TEMPERATURE_EVERY_S = 10.0


class DivergedError(AgentError):
    """Every rank finds this at the same step."""


@dataclass(frozen=True)
class RankStep:
    """One rank's step. `comm_s` is what its computing waited for communication, `reduce_s` what that took in all.

    Not a number: temperature unknown.
    """

    loss: float
    compute_s: float
    comm_s: float
    temperature_c: float
    reduce_s: float = 0.0


class Thermometer:
    """Reads the processor's temperature every few seconds, and remembers it in between."""

    def __init__(self) -> None:
        self._read_at = -math.inf
        self._celsius = math.nan

    def read(self) -> float:
        if time.monotonic() - self._read_at >= TEMPERATURE_EVERY_S:
            reading = thermal.from_zones()
            self._celsius = reading.celsius if reading else math.nan
            self._read_at = time.monotonic()
        return self._celsius


def exchange(own: RankStep, world: World, spec: RunSpec, step: int) -> list[RankStep]:
    """Everybody's step, by rank. Raises on all ranks when one has diverged."""
    rows = [RankStep(*row) for row in world.allgather(np.array(astuple(own))).tolist()]
    diverged = [rank for rank, row in zip(spec.ranks, rows, strict=True) if not math.isfinite(row.loss)]
    if diverged:
        first, others = where(diverged[0]), f" and {len(diverged) - 1} more" if len(diverged) > 1 else ""
        raise DivergedError(f"step {step}: the loss is not a number on {first}{others}: lower the learning rate")
    return rows


def check_values(state: State, world: World, spec: RunSpec, step: int) -> None:
    """A step may spoil values whose loss was still a number. Raises on all ranks when one's are spoiled."""
    ends = [
        end for buffer in (state.values, state.statistics) for end in (buffer.min(initial=0), buffer.max(initial=0))
    ]
    sound = world.allgather(np.array([np.isfinite(ends).all()], np.float64))[:, 0]
    for rank in spec.ranks:
        if not sound[rank.rank]:
            raise DivergedError(f"step {step}: {where(rank)} has values that are not numbers: lower the learning rate")


def merge(rows: list[RankStep], spec: RunSpec, step_s: float) -> dict[str, Any]:
    """The slowest rank sets the pace, and the rank that waited least for the others shows what communication costs."""
    loss = sum(row.loss * rank.batch for row, rank in zip(rows, spec.ranks, strict=True)) / spec.global_batch
    slowest = max(range(len(rows)), key=lambda index: rows[index].compute_s)
    return {
        "loss": loss,
        "images_per_s": spec.global_batch / step_s,
        "step_s": step_s,
        "compute_s": rows[slowest].compute_s,
        "comm_s": min(row.comm_s for row in rows),
        "reduce_s": min(row.reduce_s for row in rows),
        "slowest": spec.ranks[slowest].phone,
        "hottest": _hottest(rows, spec),
    }


def where(rank: RankSpec) -> str:
    return f"{rank.phone} ({rank.switch}:{rank.port})"


def _hottest(rows: list[RankStep], spec: RunSpec) -> dict[str, Any] | None:
    known = [index for index, row in enumerate(rows) if math.isfinite(row.temperature_c)]
    if not known:
        return None
    hottest = max(known, key=lambda index: rows[index].temperature_c)
    return {"phone": spec.ranks[hottest].phone, "temperature_c": rows[hottest].temperature_c}
