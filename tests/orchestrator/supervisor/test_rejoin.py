"""Probing lost phones in the background."""

from __future__ import annotations

import time
from typing import Any

import pytest

from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Phone
from orchestrator.supervisor import rejoin
from orchestrator.supervisor.probe import LeaseHeldError, Probe
from orchestrator.supervisor.rejoin import RejoinMonitor
from orchestrator.supervisor.restart_policy import FailureHistory
from tests.orchestrator.supervisor.samples import FOUR

LOST = FOUR[3]


def monitor(monkeypatch: pytest.MonkeyPatch, terminate: Any) -> RejoinMonitor:
    monkeypatch.setattr(rejoin, "terminate", terminate)
    monkeypatch.setattr(FailureHistory, "rejoin_probe_s", lambda *_: 0.05)
    fleet: Any = None
    return RejoinMonitor(fleet, "run", [LOST], FailureHistory())


def next_result(found: RejoinMonitor, seconds: float = 5.0) -> tuple[Phone, ...]:
    deadline = time.monotonic() + seconds
    while not (able := found.poll()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return able


def test_a_phone_that_answers_is_reported_until_it_rejoins(monkeypatch: pytest.MonkeyPatch) -> None:
    found = monitor(monkeypatch, lambda *_: (Probe(LOST),))
    assert next_result(found) == (LOST,)
    assert found.poll() == (), "it is not reported twice for one probe"
    assert next_result(found) == (LOST,)


def test_a_probe_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[ClusterctlError] = [LeaseHeldError("held"), ClusterctlError("no answer")]

    def terminate(*_: Any) -> tuple[Probe, ...]:
        if errors:
            raise errors.pop()
        return (Probe(LOST),)

    assert next_result(monitor(monkeypatch, terminate)) == (LOST,)
