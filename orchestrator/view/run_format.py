"""Parts of a run's progress as text, shared by the live view, the plain view and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from orchestrator.format import format_clock
from orchestrator.records.events import MAX_LOSS, Event, PauseEvent, Progress, RebalanceEvent, ResumeEvent
from orchestrator.records.run_status import RunStatus
from orchestrator.text import count_of

CURVE_WIDTH = 44  # the whole view fits 80 columns
STATE_STYLE = {"done": "green", "running": "green", "failed": "bold red", "stopped": "yellow", "lost": "bold red"}
_BARS = "▁▂▃▄▅▆▇█"


def format_phase(what: str, count: tuple[int, int]) -> str:
    """One phase of the launch: `checking 4 phones: 2 of 4`."""
    done, total = count
    return f"{what} {count_of(total, 'phone')}: {'done' if done == total else f'{done} of {total}'}"


def format_step(progress: Progress) -> str:
    parts = (
        f"step {progress.step}/{progress.steps}",
        "" if progress.loss is None else f"loss {format_loss(progress.loss)}",
        format_speed(progress),
        "" if progress.hottest is None else f"{progress.hottest.phone} {progress.hottest.temperature_c:.0f} °C",
        "" if progress.eta_s is None else f"{format_clock(progress.eta_s)} left",
    )
    return "  ".join(part for part in parts if part)


def format_loss(loss: float) -> str:
    return "diverged" if abs(loss) >= MAX_LOSS else f"{loss:.4f}"


def format_speed(progress: Progress) -> str:
    parts = (
        "" if progress.images_per_s is None else f"{progress.images_per_s:,.0f} images/s",
        "" if progress.compute_fraction is None else f"compute {progress.compute_fraction:.0%}",
        "" if progress.comm_fraction is None else f"communication {progress.comm_fraction:.0%}",
    )
    return "  ".join(part for part in parts if part)


def format_accuracy(progress: Progress) -> str:
    found = progress.evaluated
    if found is None or found.top1 is None or found.top5 is None:
        return "" if progress.test_accuracy is None else f"test accuracy {progress.test_accuracy:.1%}"
    return f"test accuracy {found.top1:.1%} (top 5: {found.top5:.1%})"


def format_computing(status: RunStatus) -> str:
    """How many phones compute, unless all of them do."""
    if status.over or status.computing == status.phones or (status.step == 0 and not status.waiting_for):
        return ""
    return f"{status.computing or 'none'} of {status.phones} compute"


def format_silence(status: RunStatus) -> str:
    """How old the last step is, if nothing arrives any more."""
    if not status.silent:
        return ""
    if status.last_step_age_s is None:
        return "no step yet, and no news from the head phone"
    last = f"last step {format_clock(status.last_step_age_s)} ago"
    return f"no news from the head phone; {last}" if status.state == "running" else last


def format_batch_change(change: RebalanceEvent) -> str:
    return f"from step {change.step}: {change.reason}"


def format_phone_event(event: Event) -> str:
    """One line when a phone's batch size changes, or when a phone pauses or resumes; else nothing."""
    if isinstance(event, RebalanceEvent):
        return format_batch_change(event)
    return event.reason if isinstance(event, PauseEvent | ResumeEvent) else ""


def sparkline(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """The curve in at most `width` characters. Each character is the mean of its section, scaled from min to max."""
    if not values:
        return ""
    parts = min(width, len(values))
    edges = [round(part * len(values) / parts) for part in range(parts + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)
