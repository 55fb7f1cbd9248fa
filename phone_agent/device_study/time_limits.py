"""How long each measurement may take: a study ends in minutes on any device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds. A step that would take longer than `step_s` is measured with a smaller batch."""

    model_step_s: float
    sweep_step_s: float
    repeat_s: float  # each case, in training and again in inference
    load_s: float  # each activity
    contest_s: float  # each situation
    case_limit_s: float  # one that hangs, or whose driver compiles for ever, ends here


USUAL = Pace(model_step_s=3.0, sweep_step_s=0.5, repeat_s=0.3, load_s=5.0, contest_s=5.0, case_limit_s=90.0)
QUICK = Pace(model_step_s=1.5, sweep_step_s=0.2, repeat_s=0.05, load_s=1.0, contest_s=1.0, case_limit_s=40.0)
