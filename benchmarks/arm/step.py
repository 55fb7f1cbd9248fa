"""How long a training step takes on a Galaxy S10+: modeled (see orchestrator.plan.forecast)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.networks import TABLE_I, network
from orchestrator.plan.forecast import published
from orchestrator.plan.forecast.device_model import KernelCost, PhoneModel
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.plan import make_plan
from phone_agent.nn.summary import training_flops

FLOPS_PER_CYCLE = 16  # two multiply-adds of four floats
LINE_RATE = 125e6


def galaxy_s10_plus(costs: Mapping[str, KernelCost]) -> PhoneModel:
    return PhoneModel(
        name="Galaxy S10+",
        clocks=(2.84e9, 2.42e9, 2.42e9, 2.42e9),  # Snapdragon 855, Hz: the big cores, as published by Qualcomm
        scaling=0.78,  # from ncnn's published times on an 855+ with one and four cores: 2.7 of 3.45
        bandwidth=20e9,  # an estimate; the specification of LPDDR4X says 34.1e9
        little_bandwidth=4e9,  # of one Cortex-A55: an estimate
        sustained=(0.65, 0.85),  # of peak when hot, from published tests of phones with this chip
        memory_bytes=2_800_000_000,  # free memory in Na et al.
        costs=costs,
    )


def assumptions(phone: PhoneModel) -> str:
    clocks = " + ".join(f"{clock / 1e9:.2f}" for clock in phone.clocks)
    low, high = phone.sustained
    return (
        f"four big cores of {clocks} GHz, {FLOPS_PER_CYCLE} flops per cycle each; together {phone.scaling:.0%} of "
        f"their sum; {phone.bandwidth / 1e9:.0f} GB/s of memory; cold (hot: {low:.0%} to {high:.0%} of it); "
        f"no communication"
    )


@dataclass(frozen=True)
class Modeled:
    network: str
    batch: int
    seconds: float
    memory_share: float  # of the time, in memory-bound steps
    flops: float
    peak: float  # flops per second

    @property
    def images_per_s(self) -> float:
        return self.batch / self.seconds

    @property
    def peak_share(self) -> float:
        return self.flops / self.seconds / self.peak


def modeled(name: str, phone: PhoneModel) -> Modeled:
    graph, batch = network(name), TABLE_I[name]
    plan = make_plan(graph, batch, Options(threads=len(phone.clocks)))
    times = [*map(phone.op_time, plan.training.ops), phone.update_time(graph.parameter_count)]
    seconds = sum(each.seconds for each in times)
    waiting = sum(each.memory_s for each in times if each.memory_s > each.compute_s)
    flops, peak = float(training_flops(graph) * batch), FLOPS_PER_CYCLE * sum(phone.clocks)
    return Modeled(name, batch, seconds, waiting / seconds, flops, peak)


def paper_at_most(name: str, megabytes: float) -> float | None:
    """Upper bound on the images per second of one phone in the paper, which does not state it. The allreduce took at
    least its time on gigabit Ethernet, and the paper's efficiency then bounds the computing time."""
    if name not in published.EFFICIENCY:
        return None
    efficiency = published.EFFICIENCY[name]
    sent = 2 * (published.PHONES - 1) / published.PHONES * megabytes * 1e6 / LINE_RATE
    return TABLE_I[name] / (sent * efficiency / (1 - efficiency))
