"""What `launch --dry-run` prints: the run as it would start."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.choices import FP32_ALGORITHMS
from phone_agent.contract.schema import CommunicationSpec, ComputeSpec, OptimizerSpec, RunSpec, ScheduleSpec


def print_plan(console: Console, spec: RunSpec, argv: Sequence[str], recipe: str | None = None) -> None:
    for line in describe_options(spec, recipe):
        console.print(line, soft_wrap=True)
    print_table(console, render_ranks(spec))
    console.print(Text(shlex.join(argv), "dim"), soft_wrap=True)


def render_ranks(spec: RunSpec) -> FitTable:
    """Neighboring ranks with the same batch size share a line."""
    table = FitTable(
        "ranks",
        Column("ports", priority=1),
        "phones",
        Column("addresses", priority=2),
        Column("batch per phone", right=True),
        title=f"{spec.network}, {spec.steps} steps, global batch {spec.global_batch}",
    )
    for (switch, batch), group in groupby(spec.ranks, key=lambda rank: (rank.switch, rank.batch)):
        ranks = list(group)
        first, last = ranks[0], ranks[-1]
        pairs = ((first.rank, last.rank), (f"{switch}:{first.port}", last.port), (first.phone, last.phone))
        cells = [_ends(str(low), str(high), len(ranks)) for low, high in (*pairs, (first.address, last.address))]
        table.add_row(*cells, str(batch))
    return table


def describe_options(spec: RunSpec, recipe: str | None) -> list[str]:
    """One line each for recipe, optimizer, schedule, communication and compute."""
    lines = [f"recipe: {recipe}"] if recipe else []
    return [
        *lines,
        f"optimizer: {_optimizer(spec.optimizer)}",
        f"schedule: {_schedule(spec.schedule)}",
        f"allreduce: {_communication(spec.communication)}",
        f"compute: {_compute(spec.compute)}",
    ]


def _optimizer(optimizer: OptimizerSpec) -> str:
    words = [f"{optimizer.name}, learning rate {optimizer.learning_rate:g}, momentum {optimizer.momentum:g}"]
    words += [f"weight decay {optimizer.weight_decay:g}"] if optimizer.weight_decay else []
    words += [f"label smoothing {optimizer.label_smoothing:g}"] if optimizer.label_smoothing else []
    return ", ".join(words)


def _schedule(schedule: ScheduleSpec) -> str:
    words = [schedule.policy]
    words += [f"warm-up over {schedule.warmup_steps} steps"] if schedule.warmup_steps else []
    words += [f"times {schedule.gamma:g} every {schedule.decay_steps} steps"] if schedule.policy == "step" else []
    return ", ".join(words)


def _communication(communication: CommunicationSpec) -> str:
    algorithm, wire = communication.algorithm, communication.wire
    if wire == "auto":
        wire = "fp32" if algorithm in FP32_ALGORITHMS else "fp32 or fp16"
    words = ["algorithm chosen by a link probe" if algorithm == "auto" else algorithm, wire]
    words += [f"only every {communication.local_steps} steps (local SGD)"] if communication.local_steps > 1 else []
    return ", ".join(words)


def _compute(compute: ComputeSpec) -> str:
    words = ["as measured by clusterctl tune" if compute.devices else compute.backend]
    words += [f"{compute.threads} threads"] if compute.threads else []
    words += ["activations in fp16"] if compute.activations == "fp16" else []
    return ", ".join(words)


def _ends(first: str, last: str, count: int) -> str:
    return first if count == 1 else f"{first} .. {last}"
