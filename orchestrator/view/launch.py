"""A run as a person watches it: live on a terminal, line by line elsewhere. All on stderr; only the summary is not."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from itertools import groupby, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.launch.request import FP32_ONLY
from orchestrator.records.events import FOLLOWER_EVENTS, Event, Progress, Shares
from orchestrator.records.record import RunRecord
from orchestrator.supervisor.diagnosis import Diagnosis
from orchestrator.text import count_of
from orchestrator.view.console import err, next_step, out
from phone_agent.contract.schema import RunSpec

_BARS = "▁▂▃▄▅▆▇█"
_CHOSEN = ("algorithm", "group", "wire", "bucket_bytes", "predicted_s", "limit_s")
_CURVE = 60
_LINE_EVERY_S = 5.0
STATE_STYLE = {"done": "green", "running": "green", "failed": "bold red", "stopped": "yellow", "lost": "bold red"}


def run_view(spec: RunSpec | None = None) -> RunView:
    return LiveView(spec) if err.is_terminal else PlainView()


class PlainView:
    """For logs and pipes: a line when something begins, and a step every few seconds."""

    def __init__(self) -> None:
        self._printed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def phase(self, what: str, done: int, total: int) -> None:
        if done == total:
            err.print(phase_line(what, (done, total)), markup=False)

    def update(self, progress: Progress, event: Event) -> None:
        if event.kind == "warning":
            err.print(f"warning: {progress.warnings[-1]}", markup=False)
        if event.kind == "incident":
            err.print(event.text("message"), markup=False, soft_wrap=True)
        if line := news(progress, event):
            err.print(line, markup=False, soft_wrap=True)
        if event.kind == "evaluate":
            err.print(f"step {progress.step}/{progress.steps}  {_accuracy(progress)}", markup=False, soft_wrap=True)
        last = progress.step >= progress.steps
        if event.kind == "step" and (last or time.monotonic() - self._printed > _LINE_EVERY_S):
            self._printed = time.monotonic()
            err.print(step_line(progress), markup=False, soft_wrap=True)

    def broken(self, why: str) -> None:
        err.print(f"lost sight of the run ({why}); trying again", markup=False, soft_wrap=True)


class LiveView:
    """Redrawn in place; the run as it was last seen stays on the screen."""

    def __init__(self, spec: RunSpec | None) -> None:
        self._spec = spec
        self._phases: dict[str, tuple[int, int]] = {}
        self._progress: Progress | None = None
        self._heard = time.monotonic()
        self._trouble = ""
        self._live = Live(console=err, refresh_per_second=4, get_renderable=self._render, transient=spec is None)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    def phase(self, what: str, done: int, total: int) -> None:
        self._phases[what] = (done, total)

    def update(self, progress: Progress, event: Event) -> None:
        self._progress, self._trouble = progress, ""
        if event.kind not in FOLLOWER_EVENTS:
            self._heard = time.monotonic()

    def broken(self, why: str) -> None:
        self._trouble = f"lost sight of the run ({why}); trying again"

    def _render(self) -> RenderableType:
        lines: list[RenderableType] = [Text(phase_line(*item)) for item in self._phases.items()]
        if self._spec is not None:
            progress = self._progress or Progress(self._spec.steps)
            quiet = 0.0 if progress.over else time.monotonic() - self._heard
            lines.append(run_panel(self._spec, progress, quiet))
        if self._trouble:
            lines.append(Text(self._trouble, "yellow"))
        return Group(*lines)


def phase_line(what: str, count: tuple[int, int]) -> str:
    done, total = count
    return f"{what} {count_of(total, 'phone')}: {'done' if done == total else f'{done} of {total}'}"


def run_panel(spec: RunSpec, progress: Progress, quiet_s: float = 0.0) -> RenderableType:
    """`quiet_s`: how long nothing was heard; it counts as time that passes."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column()
    grid.add_row("", _title(spec, progress))
    grid.add_row("step", _bar(progress))
    grid.add_row("loss", _loss(progress))
    if progress.evaluated is not None:
        grid.add_row("held out", Text(f"{_accuracy(progress)} at step {progress.evaluated.step}"))
    grid.add_row("speed", Text(_speed(progress)))
    grid.add_row("hottest", Text(_hottest(spec, progress)))
    grid.add_row("time", Text(_times(progress, quiet_s)))
    for incident in progress.incidents[-2:]:
        grid.add_row("", Text(incident, "bold yellow", overflow="ellipsis", no_wrap=True))
    for line in _conditions(progress):
        grid.add_row("", Text(line, "yellow", overflow="ellipsis", no_wrap=True))
    for warning in progress.warnings[-2:]:
        grid.add_row("", Text(warning, "yellow", overflow="ellipsis", no_wrap=True))
    if not progress.over:
        grid.add_row("", Text("Ctrl-C: stop or detach. The run goes on without this computer.", "dim"))
    return grid


def news(progress: Progress, event: Event) -> str:
    """One line where a phone's share changed, or it rests, or no longer does."""
    if event.kind == "rebalance" and progress.shares:
        return share_line(progress.shares[-1])
    return event.text("reason") if event.kind in {"pause", "resume"} else ""


def share_line(change: Shares) -> str:
    return f"from step {change.step}: {change.why}"


def _conditions(progress: Progress) -> list[str]:
    return [*[share_line(change) for change in progress.shares[-1:]], *progress.resting.values()][:3]


def sparkline(values: Sequence[float], width: int = _CURVE) -> str:
    """The curve in at most `width` characters: each the mean of its part, from the lowest to the highest."""
    if not values:
        return ""
    parts = min(width, len(values))
    edges = [round(part * len(values) / parts) for part in range(parts + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def step_line(progress: Progress) -> str:
    parts = (
        f"step {progress.step}/{progress.steps}",
        "" if progress.loss is None else f"loss {progress.loss:.4f}",
        _speed(progress),
        "" if progress.hottest is None else f"{progress.hottest[0]} {progress.hottest[1]:.0f} °C",
        "" if progress.eta_s is None else f"{duration(progress.eta_s)} left",
    )
    return "  ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class Answer(Enum):
    STOP = "stop"
    DETACH = "detach"
    NOBODY = "nobody there to ask"


def ask_stop_or_detach() -> Answer:
    """Asked once. Without a terminal, or on another Ctrl-C, the run is left alone."""
    if not (sys.stdin.isatty() and err.is_terminal):
        return Answer.NOBODY
    try:
        answer = err.input("\n[bold]Stop the run, or detach and let it go on?[/] \\[s/[bold]D[/]] ")
    except (EOFError, KeyboardInterrupt):
        err.print()
        return Answer.NOBODY
    return Answer.STOP if answer.strip().lower() in {"s", "stop"} else Answer.DETACH


def say_stopped(record: RunRecord) -> None:
    err.print(f"{record.run_id} is {record.state} at step {record.step} of {record.steps}.", markup=False)
    next_step(f"clusterctl collect-logs {record.run_id}")


def say_detached(run_id: str) -> None:
    err.print(f"Detached. {run_id} goes on.", markup=False)
    next_step(f"clusterctl attach {run_id}", "watch")
    next_step(f"clusterctl stop {run_id}", "stop")


def print_summary(
    spec: RunSpec, progress: Progress, diagnosis: Diagnosis | None, checkpoint: Path | None = None
) -> None:
    where = f"{progress.step} of {count_of(progress.steps, 'step')} on {count_of(spec.ranks, 'phone')}"
    out.print(Text.assemble((progress.state, STATE_STYLE.get(progress.state, "")), f"  {spec.run_id}  {where}"))
    out.print(f"  {_outcome(progress)}", markup=False)
    if diagnosis is not None:
        out.print(Text(f"  {diagnosis.headline}", "bold red"), soft_wrap=True)
        for line in diagnosis.tail:
            out.print(Text(f"  | {line}", "dim"), soft_wrap=True)
    if travelled := _travel(progress):
        out.print(f"  {travelled}", markup=False, soft_wrap=True)
    if checkpoint is not None:
        out.print(f"  {checkpoint}", markup=False, soft_wrap=True)
        next_step(f"clusterctl export {spec.run_id}", "use it")
    if diagnosis is not None and not diagnosis.hopeless:
        next_step("clusterctl doctor" + (f" --limit {diagnosis.phone.phone}" if diagnosis.phone else ""), "examine")
    next_step(f"clusterctl collect-logs {spec.run_id}")


def summary_json(
    spec: RunSpec, progress: Progress, diagnosis: Diagnosis | None, checkpoint: Path | None = None
) -> dict[str, Any]:
    blamed = diagnosis.phone if diagnosis else None
    return {
        "run_id": spec.run_id,
        "state": progress.state,
        "model": spec.network,
        "data": spec.data.name,
        "phones": [rank.phone for rank in spec.ranks],
        "global_batch": spec.global_batch,
        "backend": progress.backend or spec.backend,
        "steps": spec.steps,
        "step": progress.step,
        "loss": progress.loss,
        "losses": progress.losses,
        "test_accuracy": progress.test_accuracy,
        "evaluated": progress.evaluated and asdict(progress.evaluated),
        "checkpoint": checkpoint and str(checkpoint),
        "images_per_s": progress.images_per_s,
        "seconds": progress.seconds,
        "choice": progress.choice and {name: progress.choice.fields.get(name) for name in _CHOSEN},
        "exposed_comm_fraction": progress.exposed_comm_fraction,
        "line_rate_fraction": progress.line_rate_fraction,
        "warnings": progress.warnings,
        "shares": [asdict(change) for change in progress.shares],
        "error": diagnosis
        and {
            "message": diagnosis.message,
            "phone": blamed and blamed.phone,
            "switch": blamed and blamed.switch,
            "port": blamed and blamed.port,
            "log": list(diagnosis.tail),
        },
    }


def _outcome(progress: Progress) -> str:
    first = progress.losses[0] if progress.losses else None
    parts = (
        "" if first is None or progress.loss is None else f"loss {first:.4f} -> {progress.loss:.4f}",
        _accuracy(progress),
        "" if progress.images_per_s is None else f"{progress.images_per_s:,.0f} images/s",
        duration(progress.seconds if progress.seconds is not None else progress.elapsed_s),
    )
    return "   ".join(part for part in parts if part)


def _travel(progress: Progress) -> str:
    """How gradients went between the phones; nothing where there was nobody to send them to."""
    chosen, reached, exposed = progress.choice, progress.line_rate_fraction, progress.exposed_comm_fraction
    if chosen is None or chosen.fields.get("limit_s") is None or exposed is None:
        return ""
    group = chosen.fields.get("group")
    way = f"gradients: {chosen.text('algorithm')}{f' in groups of {group}' if group else ''}, {chosen.text('wire')}"
    return f"{way}{_of_the_line(reached)}; {exposed:.1%} of a step waits for them"


def _of_the_line(reached: float | None) -> str:
    """Nothing where phones step alone, and share only now and then."""
    if reached is None:
        return ""
    rate = f"at {reached:.0%} of" if reached < 1 else "faster than"  # the probe is short, and may find the line busy
    return f", {rate} what a probe found the links to allow"


def _accuracy(progress: Progress) -> str:
    found = progress.evaluated
    if found is None or found.top1 is None or found.top5 is None:
        return "" if progress.test_accuracy is None else f"test accuracy {progress.test_accuracy:.1%}"
    return f"test accuracy {found.top1:.1%} (top 5: {found.top5:.1%})"


def _title(spec: RunSpec, progress: Progress) -> Text:
    title = Text.assemble(
        (spec.network, "bold"), f" on {count_of(spec.ranks, 'phone')}, batch {spec.global_batch}, {spec.data.name}"
    )
    if progress.backend:
        title.append(f", {progress.backend}")
    word = "measuring accuracy" if progress.state == "running" and progress.step >= progress.steps else progress.state
    return title.append(f"   {word}", STATE_STYLE.get(progress.state, "")).append(f"   {spec.run_id}", "dim")


def _bar(progress: Progress) -> RenderableType:
    row = Table.grid(padding=(0, 2))
    share = progress.step / progress.steps if progress.steps else 0.0
    row.add_row(
        ProgressBar(total=max(1, progress.steps), completed=progress.step, width=_CURVE),
        f"{progress.step}/{progress.steps}",
        f"{share:.0%}",
    )
    return row


def _loss(progress: Progress) -> Text:
    if progress.loss is None:
        return Text("waiting for the first step", "dim")
    return Text.assemble((f"{sparkline(progress.losses):<{_CURVE}}", "cyan"), f"  {progress.loss:.4f}")


def _speed(progress: Progress) -> str:
    parts = (
        "" if progress.images_per_s is None else f"{progress.images_per_s:,.0f} images/s",
        "" if progress.compute_share is None else f"compute {progress.compute_share:.0%}",
        "" if progress.comm_share is None else f"communication {progress.comm_share:.0%}",
    )
    return "  ".join(part for part in parts if part)


def _hottest(spec: RunSpec, progress: Progress) -> str:
    if progress.hottest is None:
        return "unknown"
    name, celsius = progress.hottest
    where = next((f" ({rank.switch}:{rank.port})" for rank in spec.ranks if rank.phone == name), "")
    return f"{name}{where}  {celsius:.0f} °C"


def _times(progress: Progress, quiet_s: float) -> str:
    passed = duration(progress.elapsed_s + quiet_s)
    left = progress.eta_s
    return f"{passed} passed" + ("" if left is None else f", {duration(max(0.0, left - quiet_s))} left")


def print_plan(console: Console, spec: RunSpec, argv: Sequence[str], recipe: str | None = None) -> None:
    """What `--dry-run` shows: the run as it would start, neighbours with the same batch on one line."""
    for line in _rules(spec, recipe):
        console.print(line, soft_wrap=True)
    title = f"{spec.network}, {spec.steps} steps, global batch {spec.global_batch}"
    table = Table(box=None, padding=(0, 2), title=title)
    for column in ("ranks", "ports", "phones", "addresses", "batch per phone"):
        table.add_column(column)
    for (switch, batch), group in groupby(spec.ranks, key=lambda rank: (rank.switch, rank.batch)):
        ranks = list(group)
        first, last = ranks[0], ranks[-1]
        pairs = ((first.rank, last.rank), (f"{switch}:{first.port}", last.port), (first.phone, last.phone))
        cells = [_ends(str(low), str(high), len(ranks)) for low, high in (*pairs, (first.address, last.address))]
        table.add_row(*cells, str(batch))
    console.print(table)
    console.print(Text(shlex.join(argv), "dim"), soft_wrap=True)


def _rules(spec: RunSpec, recipe: str | None) -> list[str]:
    """How it learns and talks, in words."""
    rules, schedule = spec.optimizer, spec.schedule
    learning = [f"{rules.method}, learning rate {rules.learning_rate:g}, momentum {rules.momentum:g}"]
    learning += [f"weight decay {rules.weight_decay:g}"] if rules.weight_decay else []
    learning += [f"labels smoothed by {rules.label_smoothing:g}"] if rules.label_smoothing else []
    rate = [f"{schedule.policy} rate"]
    rate += [f"rising for {schedule.warmup_steps} steps"] if schedule.warmup_steps else []
    rate += [f"times {schedule.gamma:g} each {schedule.every_steps} steps"] if schedule.policy == "step" else []
    way = "what suits the line (it is measured)" if spec.algorithm == "auto" else spec.algorithm
    talking = [f"gradients by {way} as {_wire(spec)}"]
    talking += [f"averaged after each {spec.local_steps} steps alone"] if spec.local_steps > 1 else []
    name = [f"recipe {recipe}"] if recipe else []
    tuned = ["computed as clusterctl tune found"] if spec.ways else []
    computing = tuned or ([] if spec.backend in {"auto", "cpu"} else [f"computed by {spec.backend}"])
    computing += ["activations stored in fp16"] if spec.half else []
    return [*name, *(", ".join(words) for words in (learning, rate, [*talking, *computing]))]


def _wire(spec: RunSpec) -> str:
    if spec.wire != "auto":
        return spec.wire
    return "fp32" if spec.algorithm in FP32_ONLY else "fp32 or fp16"


def _ends(first: str, last: str, count: int) -> str:
    return first if count == 1 else f"{first} .. {last}"


RunView = LiveView | PlainView
