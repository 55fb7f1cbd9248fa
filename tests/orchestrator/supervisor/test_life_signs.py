"""How long a run may show no step: forever while its ranks make progress, not long once one hangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.records.causes import Cause
from orchestrator.supervisor.life_signs import STALL_S, LifeSigns, diagnose_hang, stall_limit_s
from orchestrator.supervisor.probe import Probe
from orchestrator.supervisor.states import (
    Diagnosing,
    Following,
    PhonesProbed,
    Question,
    Recovering,
    RunContext,
    State,
)
from orchestrator.supervisor.transition import transition
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.startup import StartupPhase
from tests.orchestrator.supervisor.samples import FOUR, SPEC, record

FIRST_STEP, COMPILING, CONNECTING = StartupPhase.FIRST_STEP, StartupPhase.COMPILING, StartupPhase.CONNECTING
SYNCHRONIZING, TRAINING = StartupPhase.SYNCHRONIZING, StartupPhase.TRAINING
STARTED = 1000.0


def ranks(phase: StartupPhase | None = SYNCHRONIZING, cpu_s: float = 1.0, **changes: Any) -> tuple[Probe, ...]:
    """All in one phase."""
    return tuple(Probe(phone, ranks=int(phase is not None), phase=phase, cpu_s=cpu_s, **changes) for phone in FOUR)


def with_last(probes: tuple[Probe, ...], **changes: Any) -> tuple[Probe, ...]:
    return (*probes[:-1], replace(probes[-1], **changes))


def follow(*rounds: tuple[float, tuple[Probe, ...]], usual_step_s: float | None = None) -> State:
    """The state after these probes, at these times since the last event."""
    state: State = Following(RunContext(record(), SPEC), stepped=usual_step_s is not None)
    for number, (seconds, probes) in enumerate(rounds):
        assert isinstance(state, Following), f"given up before {seconds} s: {state}"
        event = PhonesProbed(probes, 0, STARTED, step_overdue=True, first_probe=number == 0, usual_step_s=usual_step_s)
        state, _ = transition(Diagnosing(state, Question.STEP_OVERDUE), event, STARTED + seconds)
    return state


def failure(state: State) -> tuple[Cause, str | None, str]:
    assert isinstance(state, Recovering)
    assert state.failure is not None
    return state.failure.cause, state.failure.phone, state.failure.message


def test_a_rank_that_computes_its_first_step_is_never_given_up() -> None:
    waiting = ranks(TRAINING)
    slow = [(60.0 * number, with_last(waiting, phase=FIRST_STEP, cpu_s=4.0 * number)) for number in range(1, 200)]
    assert isinstance(follow(*slow), Following)


def test_a_rank_that_starts_late_is_not_missing() -> None:
    late = with_last(ranks(CONNECTING), phase=None, ranks=0)
    assert isinstance(follow((60, late), (180, late), (240, with_last(ranks(CONNECTING)))), Following)


def test_ranks_that_go_from_phase_to_phase_are_never_given_up() -> None:
    phases = enumerate([None, *StartupPhase], start=1)
    assert isinstance(follow(*((250.0 * number, ranks(phase, cpu_s=0.0)) for number, phase in phases)), Following)


def test_a_rank_that_hangs_is_named_with_its_phase() -> None:
    hung = with_last(ranks(SYNCHRONIZING), phase=COMPILING)
    found = failure(follow((60, hung), (180, hung), (420, hung)))
    assert found[:2] == (Cause.NO_PROGRESS, "p2-02")
    assert found[2] == "hung while compiling the model: no sign of life for 360 s"


def test_waiting_for_others_is_no_sign_of_life() -> None:
    """A rank that waits polls, and uses the CPU."""
    rounds = [
        (60.0 * number, with_last(ranks(CONNECTING, cpu_s=number), phase=None, ranks=0)) for number in range(1, 8)
    ]
    cause, phone, message = failure(follow(*rounds))
    assert (cause, phone) == (Cause.NO_PROGRESS, "p2-02")
    assert message.startswith("hung before its start: ")


def test_a_thread_that_reads_sensors_is_no_sign_of_life() -> None:
    """It uses a little CPU while the rank itself is deadlocked."""
    rounds = [
        (60.0 * number, with_last(ranks(SYNCHRONIZING), phase=COMPILING, cpu_s=0.2 * number)) for number in range(1, 8)
    ]
    assert failure(follow(*rounds))[:2] == (Cause.NO_PROGRESS, "p2-02")


def test_a_phone_whose_agent_is_too_busy_to_answer_does_not_end_a_run_that_makes_progress() -> None:
    busy = {"error": "not done after 6 s", "agent_failed": True, "code": ErrorCode.TIMED_OUT}
    rounds = [(60.0 * number, with_last(ranks(COMPILING, cpu_s=4.0 * number), **busy)) for number in range(1, 20)]
    assert isinstance(follow(*rounds), Following)


@pytest.mark.parametrize(
    ("usual_step_s", "seconds", "after"), [(1.0, 290, Following), (1.0, 310, Recovering), (60.0, 310, Following)]
)
def test_between_steps_the_limit_follows_from_the_usual_step(
    usual_step_s: float, seconds: float, after: type[State]
) -> None:
    rounds = [(2.0, ranks(TRAINING, cpu_s=0.0)), (seconds, ranks(TRAINING, cpu_s=seconds))]
    assert isinstance(follow(*rounds, usual_step_s=usual_step_s), after)


def test_the_limit_follows_from_the_plan() -> None:
    few, many = SPEC, replace(SPEC, ranks=SPEC.ranks * 500)
    signs = LifeSigns().after(ranks(FIRST_STEP, phase_expected_s=30.0), STARTED)
    assert STALL_S < stall_limit_s(few, LifeSigns(), None) < stall_limit_s(many, LifeSigns(), None)
    assert stall_limit_s(few, signs, None) > 1500, "a large batch on a phone that may be slow"


def test_several_ranks_that_hang_are_listed() -> None:
    signs = LifeSigns().after((*ranks(COMPILING)[:2], *ranks(SYNCHRONIZING)[2:]), STARTED)
    diagnosis = diagnose_hang(SPEC, signs, 400)
    assert (diagnosis.rank, diagnosis.phones) == (None, ("p1-01", "p1-02"))
    everywhere = diagnose_hang(SPEC, LifeSigns().after(ranks(TRAINING), STARTED), 400)
    assert everywhere.headline == "all ranks hung while training: no sign of life for 400 s"
