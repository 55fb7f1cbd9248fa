"""How long a training step takes on a Galaxy S10+: modelled, since nobody here has one.

Each step of the core takes the longer of two times: its cycles, as counted and scheduled for a kernel of its kind, on
all four big cores; and its bytes, at what the memory gives. They add up. Assumed is what stands below, and that caches
hold what the blocks are made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.arm.kernels import TOUCHED
from benchmarks.networks import TABLE_I, network
from phone_agent.core.ops import Algorithm, Kind, Method, Pooling
from phone_agent.nn.backends import Options
from phone_agent.nn.plan.plan import make
from phone_agent.nn.plan.steps import Step
from phone_agent.nn.summary import training_flops

CLOCKS = (2.84e9, 2.42e9, 2.42e9, 2.42e9)  # Snapdragon 855, Hz: the big cores, as Qualcomm states them
FLOPS_A_CYCLE = 16  # two multiply-adds of four floats
SCALING = 0.78  # of four cores' sum: ncnn's published times on an 855+ for one and four of them, 2.7 of 3.45
BANDWIDTH = 20e9  # bytes a second for the CPU, of 34.1e9 that LPDDR4X has by its specification: an estimate
SUSTAINED = (0.65, 0.85)  # of the speed when cold: what published tests of phones with this chip kept when hot

ASSUMPTIONS = (
    f"four big cores of {' + '.join(f'{clock / 1e9:.2f}' for clock in CLOCKS)} GHz, {FLOPS_A_CYCLE} flops a cycle "
    f"each; together {SCALING:.0%} of their sum; {BANDWIDTH / 1e9:.0f} GB/s of memory; cold (hot: "
    f"{SUSTAINED[0]:.0%} to {SUSTAINED[1]:.0%} of it); no communication"
)

# The paper states no images a second. Of these two networks it gives the share of computing in a step on 138 phones;
# the gradients' sum took at least what they take on gigabit Ethernet, so computing took at least so long as well.
PAPER_EFFICIENCY = {"squeezenet_v1_1": 0.858, "resnet152": 0.122}
PAPER_PHONES, LINE_RATE = 138, 125e6


@dataclass(frozen=True)
class Cost:
    """Of a kernel, on one core: cycles for one flop of the direct method, or for one byte."""

    by_flop: float
    by_byte: float


@dataclass(frozen=True)
class Modelled:
    network: str
    batch: int
    seconds: float
    memory_share: float  # of the time, in steps that wait for memory
    flops: float

    @property
    def images_per_s(self) -> float:
        return self.batch / self.seconds

    @property
    def peak_share(self) -> float:
        return self.flops / self.seconds / (FLOPS_A_CYCLE * sum(CLOCKS))


def modelled(name: str, costs: Mapping[str, Cost]) -> Modelled:
    graph, batch = network(name), TABLE_I[name]
    plan = make(graph, batch, Options(threads=len(CLOCKS)))
    times = [_times(step, costs) for step in plan.training.steps]
    update = TOUCHED[Method.SGD] * 4 * graph.parameter_count
    times.append((_compute(costs["update sgd"].by_byte * update), update / BANDWIDTH))
    seconds = sum(map(max, times))
    waiting = sum(memory for compute, memory in times if memory > compute)
    return Modelled(name, batch, seconds, waiting / seconds, float(training_flops(graph) * batch))


def _times(step: Step, costs: Mapping[str, Cost]) -> tuple[float, float]:
    cost = costs[like(step)]
    cycles = cost.by_flop * step.flops if step.flops else cost.by_byte * step.traffic
    return _compute(cycles), (step.traffic + _weight_bytes(step)) / BANDWIDTH


def _compute(cycles: float) -> float:
    return cycles / (SCALING * sum(CLOCKS))


def _weight_bytes(step: Step) -> float:
    """Read or written once; transformed ones are written and read again."""
    g: Any = step.fields.get("g")
    if not step.flops or g is None:
        return 0.0
    weights: float = 4.0 * g["kernel_h"] * g["kernel_w"] * (g["in_c"] // g["groups"]) * g["out_c"]
    points = {Algorithm.WINOGRAD2: 16, Algorithm.WINOGRAD4: 36}.get(_algorithm(step), 0)
    return weights * (1 + 2 * points / 9)


def _algorithm(step: Step) -> Algorithm:
    given: Any = step.fields.get("algorithm", Algorithm.DIRECT)
    return Algorithm(given)


def like(step: Step) -> str:
    """The kernel that stands for it."""
    name, fields = step.kind.name.lower(), step.fields
    match step.kind:
        case Kind.CONV_FORWARD | Kind.CONV_BACKWARD_DATA | Kind.CONV_BACKWARD_WEIGHTS:
            return f"{name} {_way(step)}"
        case Kind.DEPTHWISE_FORWARD | Kind.DEPTHWISE_BACKWARD_DATA | Kind.DEPTHWISE_BACKWARD_WEIGHTS:
            g: Any = fields["g"]
            return f"{name} s{min(g['stride'], 2)}"
        case Kind.POOL_FORWARD | Kind.POOL_BACKWARD:
            pooling: Any = fields["pooling"]
            return f"{name} {Pooling(pooling).name.lower()}"
        case Kind.NORM_BACKWARD:
            return f"{name} reduced" if fields.get("reduced") else name
        case _:
            return name


def _way(step: Step) -> str:
    g: Any = step.fields["g"]
    if _algorithm(step) != Algorithm.DIRECT:
        return _algorithm(step).name.lower()
    if g["in_c"] <= 4 and step.kind != Kind.CONV_BACKWARD_DATA:
        return "7x7 s2 image"
    if g["in_h"] == g["in_w"] == 1:
        return "fully connected"
    return "1x1" if g["kernel_h"] == g["kernel_w"] == 1 else "3x3"


def paper_at_most(name: str, megabytes: float) -> float | None:
    """Images a second a phone of the paper's can have computed."""
    if name not in PAPER_EFFICIENCY:
        return None
    efficiency = PAPER_EFFICIENCY[name]
    sent = 2 * (PAPER_PHONES - 1) / PAPER_PHONES * megabytes * 1e6 / LINE_RATE
    return TABLE_I[name] / (sent * efficiency / (1 - efficiency))
