"""What is true about a run at this moment, derived from its files. Whatever shows a run shows this. Pure.

Times are epoch seconds of this computer: clocks of phones differ.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.records.activity import Activity
from orchestrator.records.events import FINAL_STATES, Progress
from orchestrator.records.record import RunRecord
from orchestrator.text import count_of

QUIET_S = 10.0  # without an event, before a run counts as silent
UNKNOWN_STEP_S = 60.0  # the same where the duration of a step is not known
_QUIET_STEPS = 4
_COMPUTES = frozenset({"running"})
_WAITS = frozenset({"recovering", "interrupted"})


@dataclass(frozen=True)
class RunStatus:
    run_id: str
    state: str
    step: int
    steps: int
    phones: int  # that it was launched with
    computing: int  # phones that take part in steps at the moment
    last_step_age_s: float | None  # None: no step yet
    silent: bool  # no event for longer than expected
    eta_s: float | None  # None if it cannot be estimated, and while nothing arrives
    waiting_for: str = ""  # empty: for nothing
    next_command: str = ""  # that helps, or shows more

    @property
    def over(self) -> bool:
        return self.state in FINAL_STATES


def derive_status(  # noqa: PLR0917 - the files of a run, and the time
    record: RunRecord,
    progress: Progress,
    activity: Activity,
    last_event_at: float | None,
    last_step_at: float | None,
    now: float,
) -> RunStatus:
    """`last_event_at`, `last_step_at`: when they arrived on this computer; None: none has."""
    silent = not record.over and _is_silent(progress, max(last_event_at or 0.0, record.created), now)
    waiting_for, next_command = _wait(record, activity)
    age_s = None if last_step_at is None else max(0.0, now - last_step_at)
    trains = progress.state in _COMPUTES and not waiting_for
    return RunStatus(
        run_id=record.run_id,
        state=progress.state,
        step=max(progress.step, record.step),
        steps=record.steps,
        phones=len(record.requested),
        computing=len(record.phones) - len(progress.resting) if trains and progress.step else 0,
        last_step_age_s=None if record.over else age_s,
        silent=silent,
        eta_s=_eta_s(progress, age_s) if trains and not silent else None,
        waiting_for=waiting_for,
        next_command=next_command,
    )


def _is_silent(progress: Progress, last_event_at: float, now: float) -> bool:
    step_s = progress.mean_step_s
    limit_s = UNKNOWN_STEP_S if step_s is None else max(QUIET_S, _QUIET_STEPS * step_s)
    return now - last_event_at > limit_s


def _eta_s(progress: Progress, age_s: float | None) -> float | None:
    left = progress.eta_s
    return None if left is None else max(0.0, left - (age_s or 0.0))


def _wait(record: RunRecord, activity: Activity) -> tuple[str, str]:
    """What the run waits for, and the command that helps; empty if it waits for nothing."""
    if record.state in _WAITS and activity.unable is not None:
        return _wait_for_phones(record, activity.unable)
    if record.state == "interrupted":
        return "its supervisor", f"clusterctl attach {record.run_id}"
    return "", ""


def _wait_for_phones(record: RunRecord, unable: Collection[str]) -> tuple[str, str]:
    able = sum(name not in unable for name in {*record.requested, *record.spares})
    missing = record.min_phones - able
    if missing <= 0:
        return "", ""
    waiting_for = (
        f"{count_of(missing, 'phone')}: {able} of {len(record.requested)} can take part, "
        f"at least {record.min_phones} needed (--min-phones)"
    )
    if able:
        return waiting_for, f"clusterctl attach {record.run_id} --min-phones {able}"
    return waiting_for, "clusterctl doctor"
