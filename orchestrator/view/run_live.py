"""A run on a terminal, redrawn in place on stderr. The last state stays on the screen."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.format import format_clock
from orchestrator.records.activity import Activity
from orchestrator.records.events import Event, Progress
from orchestrator.records.run_status import RunStatus
from orchestrator.text import count_of, one_line
from orchestrator.view.console import err
from orchestrator.view.run_format import (
    CURVE_WIDTH,
    STATE_STYLE,
    format_accuracy,
    format_batch_change,
    format_computing,
    format_loss,
    format_phase,
    format_silence,
    format_speed,
    sparkline,
)
from phone_agent.contract.schema import RunSpec


class LiveRunView:
    def __init__(self, spec: RunSpec | None) -> None:
        self._spec = spec
        self._phases: dict[str, tuple[int, int]] = {}
        self._progress: Progress | None = None
        self._activity = Activity()
        self._status: RunStatus | None = None
        self._live = Live(console=err, refresh_per_second=4, get_renderable=self._render, transient=spec is None)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.stop()

    def phase(self, what: str, done: int, total: int) -> None:
        self._phases[what] = (done, total)

    def update(self, progress: Progress, _event: Event) -> None:
        self._progress = progress

    def refresh(self, spec: RunSpec, progress: Progress, activity: Activity, status: RunStatus) -> None:
        """What no event reports: the phones of a new attempt, what the supervisor is doing, what the run waits for."""
        self._spec, self._progress, self._activity, self._status = spec, progress, activity, status
        self._phases = dict(activity.phases)

    def _render(self) -> RenderableType:
        lines: list[RenderableType] = [Text(format_phase(*item)) for item in self._phases.items()]
        if self._spec is not None:
            progress = self._progress or Progress(self._spec.steps)
            lines.append(render_run(self._spec, progress, self._status))
            lines += [Text(text, style) for text, style in self._supervisor_lines() if text and not progress.over]
        return Group(*lines)

    def _supervisor_lines(self) -> tuple[tuple[str, str], ...]:
        return (one_line(self._activity.doing), "dim"), (one_line(self._activity.problem), "yellow")


def render_run(spec: RunSpec, progress: Progress, status: RunStatus | None = None) -> RenderableType:
    """`status`: at this moment; None before anything is known."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column()
    grid.add_row("", _title(spec, progress))
    grid.add_row("step", _bar(progress))
    grid.add_row("loss", _loss(progress))
    if progress.evaluated is not None:
        grid.add_row("held out", Text(f"{format_accuracy(progress)} at step {progress.evaluated.step}"))
    grid.add_row("speed", Text(format_speed(progress)))
    grid.add_row("hottest", Text(_hottest(spec, progress)))
    grid.add_row("time", Text(_times(progress, status)))
    for label, text in _status_rows(status):
        grid.add_row(label, Text(text, "bold yellow"))
    for incident in progress.incidents[-2:]:
        grid.add_row("", Text(incident, "bold yellow", overflow="ellipsis", no_wrap=True))
    for line in _phone_events(progress):
        grid.add_row("", Text(line, "yellow", overflow="ellipsis", no_wrap=True))
    for warning in progress.warnings[-2:]:
        grid.add_row("", Text(warning, "yellow", overflow="ellipsis", no_wrap=True))
    if not progress.over:
        grid.add_row("", Text("Ctrl-C: stop or detach. The run continues in the background.", "dim"))
    return grid


def _phone_events(progress: Progress) -> list[str]:
    return [*[format_batch_change(change) for change in progress.batch_changes[-1:]], *progress.resting.values()][:3]


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
        ProgressBar(total=max(1, progress.steps), completed=progress.step, width=CURVE_WIDTH),
        f"{progress.step}/{progress.steps}",
        f"{share:.0%}",
    )
    return row


def _loss(progress: Progress) -> Text:
    if progress.loss is None:
        return Text("waiting for the first step", "dim")
    return Text.assemble((f"{sparkline(progress.losses):<{CURVE_WIDTH}}", "cyan"), f"  {format_loss(progress.loss)}")


def _hottest(spec: RunSpec, progress: Progress) -> str:
    if progress.hottest is None:
        return "unknown"
    name = progress.hottest.phone
    where = next((f" ({rank.switch}:{rank.port})" for rank in spec.ranks if rank.phone == name), "")
    return f"{name}{where}  {progress.hottest.temperature_c:.0f} °C"


def _times(progress: Progress, status: RunStatus | None) -> str:
    """The clock keeps moving between events. The time left is not counted down while nothing arrives."""
    idle_s = (status.last_step_age_s or 0.0) if status else 0.0
    elapsed = f"{format_clock(progress.elapsed_s + idle_s)} elapsed"
    if status is None or status.eta_s is None:
        return elapsed
    return f"{elapsed}, {format_clock(status.eta_s)} left"


def _status_rows(status: RunStatus | None) -> list[tuple[str, str]]:
    if status is None:
        return []
    rows = (
        ("phones", format_computing(status)),
        ("", format_silence(status)),
        ("waiting for", one_line(status.waiting_for)),
        ("next", status.next_command),
    )
    return [row for row in rows if row[1]]
