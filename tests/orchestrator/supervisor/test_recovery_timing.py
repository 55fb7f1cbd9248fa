"""Phases of a recovery."""

from __future__ import annotations

from orchestrator.supervisor import recovery_timing
from orchestrator.supervisor.recovery_timing import RecoveryTiming


def test_each_phase_lasts_from_the_end_of_the_one_before() -> None:
    now = [100.0]
    timing = RecoveryTiming(lambda: now[0])
    now[0] = 108.0
    timing.end_phase(recovery_timing.DETECTION, at=103.0)  # seen then, understood only now
    timing.end_phase(recovery_timing.DIAGNOSIS)
    now[0] = 110.0
    timing.end_phase(recovery_timing.START)
    now[0] = 111.0
    timing.end_phase(recovery_timing.START)  # of a second attempt, because the first one failed
    assert timing.seconds == {
        recovery_timing.DETECTION: 3.0,
        recovery_timing.DIAGNOSIS: 5.0,
        recovery_timing.START: 3.0,
    }
    timing.reset()
    assert timing.seconds == {}


def test_a_sign_from_before_the_last_step_takes_no_time() -> None:
    now = [100.0]
    timing = RecoveryTiming(lambda: now[0])
    timing.end_phase(recovery_timing.DETECTION, at=90.0)
    assert timing.seconds == {recovery_timing.DETECTION: 0.0}
