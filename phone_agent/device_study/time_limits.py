"""Time limits per measurement, so that a study takes minutes on any device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimeLimits:
    """In seconds. A step that would take longer than `*_step_s` is measured with a smaller batch."""

    model_step_s: float
    sweep_step_s: float
    repeat_s: float  # per case, for training and again for inference
    load_s: float  # per activity
    interference_s: float  # per situation
    case_limit_s: float  # a case that hangs or compiles too long is killed


DEFAULT = TimeLimits(
    model_step_s=3.0, sweep_step_s=0.5, repeat_s=0.3, load_s=5.0, interference_s=5.0, case_limit_s=90.0
)
QUICK = TimeLimits(model_step_s=1.5, sweep_step_s=0.2, repeat_s=0.05, load_s=1.0, interference_s=1.0, case_limit_s=40.0)
