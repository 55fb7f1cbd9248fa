"""How the answers of phones are read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.records.causes import Cause
from orchestrator.supervisor.probe import LeaseHeldError, Probe, probe_phones, terminate
from phone_agent.contract.decode import decode
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import RunProbe
from tests.orchestrator.supervisor.samples import FOUR


def answering(outcome: Outcome[Any]) -> Any:
    """A fleet of one phone."""
    return SimpleNamespace(map=lambda _task, _phones, **_: Outcomes((outcome,)))


@pytest.mark.parametrize(
    ("status", "phase", "code", "cause"),
    [
        (Status.UNREACHABLE, Phase.TCP, ErrorCode.CONNECTION_REFUSED, Cause.SSHD_DOWN),
        (Status.UNREACHABLE, Phase.BANNER, ErrorCode.CONNECTION_CLOSED, Cause.SSHD_DOWN),
        (Status.UNREACHABLE, Phase.TCP, ErrorCode.NO_ANSWER, Cause.PHONE_UNREACHABLE),
        (Status.UNREACHABLE, Phase.EXEC, ErrorCode.CONNECTION_LOST, Cause.PHONE_UNREACHABLE),
        (Status.FAILED, Phase.EXEC, ErrorCode.TIMED_OUT, Cause.AGENT_FAILED),
        (Status.FAILED, Phase.EXEC, ErrorCode.UNKNOWN, Cause.AGENT_FAILED),
    ],
)
def test_a_stopped_sshd_is_distinguished_from_an_unreachable_phone(
    status: Status, phase: Phase, code: ErrorCode, cause: Cause
) -> None:
    outcome: Outcome[Any] = Outcome(FOUR[0], status, 0.0, phase=phase, error="any text", code=code)
    (probe,) = probe_phones(answering(outcome), "run", FOUR[:1])
    assert (probe.problem, probe.code) == (cause, code)
    assert probe.problem_detail


def test_a_reply_becomes_a_probe() -> None:
    raw = {
        "ranks": [{"state": "R", "progressing": True}],
        "held_steps": [[3, 0], [7, 1]],
        "checkpoint_step": 5,
        "disk_mb": 900,
        "memory_mb": "much",
        "killed_by": "a\x1b[2J",
    }
    (probe,) = probe_phones(answering(Outcome(FOUR[0], Status.OK, 0.0, decode(RunProbe, raw))), "run", FOUR[:1])
    assert (probe.answered, probe.ranks, probe.progressing, probe.frozen) == (True, 1, True, False)
    assert (probe.in_memory, probe.disk_mb, probe.killed_by) == (((3, 0), (7, 1)), 900.0, "a\\x1b[2J")
    assert (probe.memory_mb, probe.checkpoint_step) == (None, 5)


def test_a_run_that_another_computer_supervises_is_left_alone() -> None:
    error, code = "laptop supervises it", ErrorCode.LEASE_HELD
    leased: Outcome[Any] = Outcome(FOUR[0], Status.FAILED, 0.0, phase=Phase.EXEC, error=error, code=code)
    with pytest.raises(LeaseHeldError, match=f"^{error}$"):
        terminate(answering(leased), "run", FOUR[:1])
    (probe,) = terminate(answering(replace(leased, code=ErrorCode.NO_SUCH_RUN)), "run", FOUR[:1])
    assert probe.problem is Cause.AGENT_FAILED


def test_a_phone_with_a_full_disk_cannot_take_part() -> None:
    assert Probe(FOUR[0], disk_mb=3.0).problem is Cause.DISK_FULL
    assert Probe(FOUR[0], disk_mb=3.0).problem_detail == "disk is full (3 MB free)"
    assert Probe(FOUR[0], disk_mb=3000.0).problem is None
