"""What `launch --dry-run` prints: the run as it would start."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from orchestrator.launch.request import FP32_ONLY
from orchestrator.view.table import Column, FitTable, print_table
from phone_agent.contract.schema import RunSpec


def print_plan(console: Console, spec: RunSpec, argv: Sequence[str], recipe: str | None = None) -> None:
    for line in _rules(spec, recipe):
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


def _rules(spec: RunSpec, recipe: str | None) -> list[str]:
    """How it learns and talks, in words."""
    rules, schedule = spec.optimizer, spec.schedule
    learning = [f"{rules.name}, learning rate {rules.learning_rate:g}, momentum {rules.momentum:g}"]
    learning += [f"weight decay {rules.weight_decay:g}"] if rules.weight_decay else []
    learning += [f"labels smoothed by {rules.label_smoothing:g}"] if rules.label_smoothing else []
    rate = [f"{schedule.policy} rate"]
    rate += [f"rising for {schedule.warmup_steps} steps"] if schedule.warmup_steps else []
    rate += [f"times {schedule.gamma:g} each {schedule.decay_steps} steps"] if schedule.policy == "step" else []
    way = (
        "what suits the line (it is measured)"
        if spec.communication.algorithm == "auto"
        else spec.communication.algorithm
    )
    talking = [f"gradients by {way} as {_wire(spec)}"]
    talking += (
        [f"averaged after each {spec.communication.local_steps} steps alone"]
        if spec.communication.local_steps > 1
        else []
    )
    name = [f"recipe {recipe}"] if recipe else []
    tuned = ["computed as clusterctl tune found"] if spec.compute.devices else []
    computing = tuned or ([] if spec.compute.backend in {"auto", "cpu"} else [f"computed by {spec.compute.backend}"])
    computing += ["activations stored in fp16"] if spec.compute.activations == "fp16" else []
    return [*name, *(", ".join(words) for words in (learning, rate, [*talking, *computing]))]


def _wire(spec: RunSpec) -> str:
    if spec.communication.wire != "auto":
        return spec.communication.wire
    return "fp32" if spec.communication.algorithm in FP32_ONLY else "fp32 or fp16"


def _ends(first: str, last: str, count: int) -> str:
    return first if count == 1 else f"{first} .. {last}"
