"""How a run ended: a few lines on stdout, or one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.events import Event, Progress
from orchestrator.records.record import Failure
from orchestrator.text import count_of
from orchestrator.view.console import next_step, out
from orchestrator.view.run_format import STATE_STYLE, format_accuracy, format_loss
from phone_agent.contract.schema import RunSpec

_PLAN_FIELDS = ("algorithm", "group", "wire", "bucket_bytes", "predicted_s", "limit_s")
_EVALUATION_FIELDS = ("step", "samples", "top1", "top5", "loss")
_BATCH_FIELDS = ("step", "batches", "reason")


def print_summary(spec: RunSpec, progress: Progress, failure: Failure | None, checkpoint: Path | None = None) -> None:
    where = f"{progress.step} of {count_of(progress.steps, 'step')} on {count_of(spec.ranks, 'phone')}"
    out.print(Text.assemble((progress.state, STATE_STYLE.get(progress.state, "")), f"  {spec.run_id}  {where}"))
    out.print(f"  {_outcome(progress)}", markup=False)
    if failure is not None:
        out.print(Text(f"  {failure.headline}", "bold red"), soft_wrap=True)
        for line in failure.log_tail:
            out.print(Text(f"  | {line}", "dim"), soft_wrap=True)
    if communication := _communication(progress):
        out.print(f"  {communication}", markup=False, soft_wrap=True)
    if checkpoint is not None:
        out.print(f"  checkpoint: {checkpoint}", markup=False, soft_wrap=True)
        if progress.state != "done":
            next_step(f"clusterctl launch --resume {spec.run_id}", "continue it")
        next_step(f"clusterctl eval {spec.run_id}", "evaluate it")
        next_step(f"clusterctl export {spec.run_id}", "export it")
    if failure is not None and not failure.permanent:
        next_step("clusterctl doctor" + (f" --limit {failure.phone}" if failure.phone else ""), "find the cause")
    next_step(f"clusterctl collect-logs {spec.run_id}", "logs")


def summary_json(
    spec: RunSpec, progress: Progress, failure: Failure | None, checkpoint: Path | None = None
) -> dict[str, Any]:
    return {
        "run_id": spec.run_id,
        "state": progress.state,
        "model": spec.network,
        "data": spec.data.name,
        "phones": [rank.phone for rank in spec.ranks],
        "global_batch": spec.global_batch,
        "backend": progress.backend or spec.compute.backend,
        "steps": spec.steps,
        "step": progress.step,
        "loss": progress.loss,
        "losses": progress.losses,
        "test_accuracy": progress.test_accuracy,
        "evaluated": progress.evaluated and _fields(progress.evaluated, _EVALUATION_FIELDS),
        "checkpoint": checkpoint and str(checkpoint),
        "images_per_s": progress.images_per_s,
        "seconds": progress.seconds,
        "choice": progress.choice and _fields(progress.choice, _PLAN_FIELDS),
        "exposed_comm_fraction": progress.exposed_comm_fraction,
        "line_rate_fraction": progress.line_rate_fraction,
        "warnings": progress.warnings,
        "batch_changes": [_fields(change, _BATCH_FIELDS) for change in progress.batch_changes],
        "error": failure
        and {
            "cause": failure.cause,
            "message": failure.message,
            "phone": failure.phone,
            "switch": failure.switch,
            "port": failure.port,
            "log": list(failure.log_tail),
        },
    }


def _fields(event: Event, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(event, name) for name in names}


def _outcome(progress: Progress) -> str:
    first = progress.losses[0] if progress.losses else None
    parts = (
        "" if first is None or progress.loss is None else f"loss {format_loss(first)} -> {format_loss(progress.loss)}",
        format_accuracy(progress),
        "" if progress.images_per_s is None else f"{progress.images_per_s:,.0f} images/s",
        format_clock(progress.seconds if progress.seconds is not None else progress.elapsed_s),
    )
    return "   ".join(part for part in parts if part)


def _communication(progress: Progress) -> str:
    """Algorithm, wire format and efficiency of the allreduce; empty for a run on one phone."""
    plan, line_rate, exposed = progress.choice, progress.line_rate_fraction, progress.exposed_comm_fraction
    if plan is None or plan.limit_s is None or exposed is None:
        return ""
    groups = f" in groups of {plan.group}" if plan.group else ""
    # A run of local steps has no line rate. The link probe is short: the allreduce may turn out to be faster.
    speed = "" if line_rate is None else f", {line_rate:.0%} of measured link speed"
    return f"allreduce: {plan.algorithm}{groups}, {plan.wire}{speed}; {exposed:.1%} of step time spent waiting"
