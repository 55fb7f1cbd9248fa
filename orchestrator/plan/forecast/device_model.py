"""How long the core's steps take on a phone: modelled, since nobody here has one.

A step takes the longer of two times: its cycles, as counted and scheduled for a kernel of its kind, on all big cores;
and its bytes, at what the memory gives. What is assumed of a phone is data beside this file, which
`python -m benchmarks.neon --update` writes from what it counted; caches are taken to hold what the blocks are made for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phone_agent.api.forecast import Algorithm, Kind, OpSpec, Pooling
from phone_agent.contract.sizes import FLOAT

GALAXY_S10_PLUS = Path(__file__).parent / "galaxy_s10_plus.json"
UPDATE = "optimizer_update sgd"
UPDATED = 5  # times an optimizer's step touches every value: reads three buffers, writes two


@dataclass(frozen=True)
class Cost:
    """Of a kernel, on one core: cycles for one flop of the direct method, or for one byte."""

    by_flop: float
    by_byte: float


@dataclass(frozen=True)
class Seconds:
    """That a step's arithmetic would take alone, and its way through memory."""

    arithmetic: float
    memory: float

    @property
    def longer(self) -> float:
        return max(self.arithmetic, self.memory)


@dataclass(frozen=True)
class Phone:
    """`scaling`: of the big cores' sum that they reach together; `bandwidth`, `little_bandwidth`: bytes a second for
    all big cores, and for the little one that communicates; `sustained`: of the speed when cold, once it is hot."""

    name: str
    clocks: tuple[float, ...]
    scaling: float
    bandwidth: float
    little_bandwidth: float
    sustained: tuple[float, float]
    memory_bytes: int
    costs: Mapping[str, Cost]

    def step(self, step: OpSpec) -> Seconds:
        cost = self.costs[kernel_of(step)]
        cycles = cost.by_flop * step.flops if step.flops else cost.by_byte * step.traffic
        return Seconds(self._on_all_cores(cycles), (step.traffic + _weight_bytes(step)) / self.bandwidth)

    def update(self, values: int) -> Seconds:
        """An optimizer's step after all gradients, on all big cores."""
        touched = UPDATED * FLOAT * values
        return Seconds(self._on_all_cores(self.costs[UPDATE].by_byte * touched), touched / self.bandwidth)

    def update_beside(self, values: int) -> float:
        """The same on the core that communicates."""
        return UPDATED * FLOAT * values / self.little_bandwidth

    def _on_all_cores(self, cycles: float) -> float:
        return cycles / (self.scaling * sum(self.clocks))


@cache
def phone(path: Path = GALAXY_S10_PLUS) -> Phone:
    told: dict[str, Any] = json.loads(path.read_text())
    told["costs"] = {name: Cost(*cost) for name, cost in told["costs"].items()}
    told["clocks"], told["sustained"] = tuple(told["clocks"]), tuple(told["sustained"])
    return Phone(**told)


def kernel_of(step: OpSpec) -> str:
    """The counted kernel that stands for it."""
    name, fields = step.kind.name.lower(), step.fields
    match step.kind:
        case Kind.CONV_FORWARD | Kind.CONV_BACKWARD_DATA | Kind.CONV_BACKWARD_WEIGHTS:
            return f"{name} {_way(step)}"
        case Kind.DEPTHWISE_FORWARD | Kind.DEPTHWISE_BACKWARD_DATA | Kind.DEPTHWISE_BACKWARD_WEIGHTS:
            g: Any = fields["g"]
            return f"{name} s{min(g['stride'], 2)}"
        case Kind.POOLING_FORWARD | Kind.POOLING_BACKWARD:
            pooling: Any = fields["pooling"]
            return f"{name} {Pooling(pooling).name.lower()}"
        case Kind.BATCH_NORM_BACKWARD:
            return f"{name} reduced" if fields.get("reduced") else name
        case _:
            return name


def _way(step: OpSpec) -> str:
    g: Any = step.fields["g"]
    if _algorithm(step) != Algorithm.DIRECT:
        return _algorithm(step).name.lower()
    if g["in_c"] <= 4 and step.kind != Kind.CONV_BACKWARD_DATA:
        return "7x7 s2 image"
    if g["in_h"] == g["in_w"] == 1:
        return "fully connected"
    return "1x1" if g["kernel_h"] == g["kernel_w"] == 1 else "3x3"


def _weight_bytes(step: OpSpec) -> float:
    """Read or written once; transformed ones are written and read again."""
    g: Any = step.fields.get("g")
    if not step.flops or g is None:
        return 0.0
    weights: float = FLOAT * g["kernel_h"] * g["kernel_w"] * (g["in_c"] // g["groups"]) * g["out_c"]
    points = {Algorithm.WINOGRAD2: 16, Algorithm.WINOGRAD4: 36}.get(_algorithm(step), 0)
    return weights * (1 + 2 * points / 9)


def _algorithm(step: OpSpec) -> Algorithm:
    given: Any = step.fields.get("algorithm", Algorithm.DIRECT)
    return Algorithm(given)
