"""Roofline model of a phone: how long each operation of a training step takes. Nothing here was measured on a phone.

An operation takes the longer of two times: its cycles on all big cores, as counted for its kernel, and its bytes at
memory bandwidth. The parameters are in a JSON file beside this module, which `python -m benchmarks.neon --update`
writes. Data that the kernels block for a cache is assumed to be in that cache.
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
UPDATE_KERNEL = "optimizer_update sgd"
UPDATE_ACCESSES = 5  # of every weight by an SGD update: reads three buffers, writes two


@dataclass(frozen=True)
class KernelCost:
    """Cycles of a kernel on one core, per flop of the direct method or per byte."""

    cycles_per_flop: float
    cycles_per_byte: float


@dataclass(frozen=True)
class OpTime:
    """The two bounds of an operation, in seconds."""

    compute_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.memory_s)


@dataclass(frozen=True)
class PhoneModel:
    name: str
    clocks: tuple[float, ...]  # of the big cores, Hz
    scaling: float  # speed of all big cores together, as a fraction of the sum of each alone
    bandwidth: float  # of memory, bytes per second for all big cores
    little_bandwidth: float  # the same for the little core that communicates
    sustained: tuple[float, float]  # speed of a hot phone, as a fraction of the cold one: from, to
    memory_bytes: int
    costs: Mapping[str, KernelCost]  # by kernel name

    def op_time(self, op: OpSpec) -> OpTime:
        cost = self.costs[kernel_name(op)]
        cycles = cost.cycles_per_flop * op.flops if op.flops else cost.cycles_per_byte * op.traffic
        return OpTime(self._on_all_cores(cycles), (op.traffic + _weight_bytes(op)) / self.bandwidth)

    def update_time(self, weights: int) -> OpTime:
        """An optimizer update of all weights on all big cores, after the last gradient."""
        accessed = UPDATE_ACCESSES * FLOAT * weights
        cycles = self.costs[UPDATE_KERNEL].cycles_per_byte * accessed
        return OpTime(self._on_all_cores(cycles), accessed / self.bandwidth)

    def background_update_s(self, weights: int) -> float:
        """The same on the little core that communicates, while the others compute."""
        return UPDATE_ACCESSES * FLOAT * weights / self.little_bandwidth

    def _on_all_cores(self, cycles: float) -> float:
        return cycles / (self.scaling * sum(self.clocks))


@cache
def load_phone_model(path: Path = GALAXY_S10_PLUS) -> PhoneModel:
    raw: dict[str, Any] = json.loads(path.read_text())
    raw["costs"] = {name: KernelCost(*cost) for name, cost in raw["costs"].items()}
    raw["clocks"], raw["sustained"] = tuple(raw["clocks"]), tuple(raw["sustained"])
    return PhoneModel(**raw)


def kernel_name(op: OpSpec) -> str:
    """The kernel whose counted cycles represent this operation."""
    name, fields = op.kind.name.lower(), op.fields
    match op.kind:
        case Kind.CONV_FORWARD | Kind.CONV_BACKWARD_DATA | Kind.CONV_BACKWARD_WEIGHTS:
            return f"{name} {_conv_variant(op)}"
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


def _conv_variant(op: OpSpec) -> str:
    g: Any = op.fields["g"]
    if _algorithm(op) != Algorithm.DIRECT:
        return _algorithm(op).name.lower()
    if g["in_c"] <= 4 and op.kind != Kind.CONV_BACKWARD_DATA:
        return "7x7 s2 image"
    if g["in_h"] == g["in_w"] == 1:
        return "fully connected"
    return "1x1" if g["kernel_h"] == g["kernel_w"] == 1 else "3x3"


def _weight_bytes(op: OpSpec) -> float:
    """Weights are read or written once; Winograd transforms are written and read again."""
    g: Any = op.fields.get("g")
    if not op.flops or g is None:
        return 0.0
    weights: float = FLOAT * g["kernel_h"] * g["kernel_w"] * (g["in_c"] // g["groups"]) * g["out_c"]
    points = {Algorithm.WINOGRAD2: 16, Algorithm.WINOGRAD4: 36}.get(_algorithm(op), 0)
    return weights * (1 + 2 * points / 9)


def _algorithm(op: OpSpec) -> Algorithm:
    given: Any = op.fields.get("algorithm", Algorithm.DIRECT)
    return Algorithm(given)
