"""The supervisor in `status` and `runs`."""

from __future__ import annotations

import time

import pytest

from orchestrator.records.record import RunRecord
from orchestrator.supervisor.status import SupervisorStatus
from orchestrator.view.supervisor import print_supervisor
from tests.orchestrator.supervisor.samples import record
from tests.orchestrator.view.screens import drawn, screen

NOW = 1_700_000_000.0
RUNNING = SupervisorStatus(41, "0.2.0", NOW, NOW, ("run",))


@pytest.mark.parametrize(
    ("status", "unfinished", "shown"),
    [
        (None, (), ""),
        (None, (record(),), "no supervisor for 1 unfinished run: nobody restarts it when a phone fails"),
        (RUNNING, (record(),), "supervisor: process 41 since "),
        (SupervisorStatus(41, "0.2.0", NOW, NOW, ()), (), ""),
        (SupervisorStatus(41, "0.2.0", NOW, NOW - 90, ("run",)), (record(),), "has not written its status for 1:30"),
    ],
)
def test_the_supervisor_is_shown_where_a_run_needs_it(
    status: SupervisorStatus | None, unfinished: tuple[RunRecord, ...], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    console = screen()
    print_supervisor(console, status, unfinished)
    text = "\n".join(drawn(console))
    assert shown in text
    assert bool(shown) == bool(text.strip())
