"""Pauses and the end of a rank."""

from __future__ import annotations

import threading
import time

import pytest

from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract import layout
from phone_agent.device.condition import Cause, Condition, Level
from phone_agent.memckpt import client
from phone_agent.memckpt.server import serve
from phone_agent.train import rank
from phone_agent.train.events import EventLog
from tests.phone_agent.phones import AGENT, Phone, mpirun, run_spec


def test_unwritable_timeline_is_a_warning(phone: Phone) -> None:
    directory = phone.stage(run_spec((4,), steps=1))
    (directory / layout.TIMELINE_FILE).mkdir()
    done = mpirun([phone], *AGENT, "train", "run")
    assert done.returncode == 0, done.stderr
    events = phone.events("run")
    assert [event["message"] for event in events if event["event"] == "warning"] == [
        "p1-01 (sw1:1): timeline.jsonl was not written: Is a directory"
    ]
    assert events[-1]["event"] == "done"


class Feverish:
    """A phone that is at its limit for the second to the fifth reading."""

    def __init__(self) -> None:
        self._asked = 0

    @property
    def condition(self) -> Condition:
        self._asked += 1
        return AT_LIMIT if 2 <= self._asked <= 5 else Condition(temperature_c=60.0)

    def close(self) -> None: ...


AT_LIMIT = Condition(temperature_c=96.0, level=Level.PAUSE, cause=Cause.PROCESSOR, work_fraction=0.0)


def test_all_ranks_pause_and_resume_at_the_same_step(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported with the second step, so the pause follows the third: other ranks may have started it."""
    monkeypatch.setattr("phone_agent.train.builder.Monitor", Feverish)
    monkeypatch.setattr(rank, "PAUSE_POLL_S", 0.0)
    directory = phone.stage(run_spec((4,), steps=5))
    holder = threading.Thread(target=serve, args=(directory,))
    holder.start()
    with EventLog(0, "p1-01", directory / layout.EVENTS_FILE) as events:
        while not client.is_running(directory):
            time.sleep(0.01)
        rank.RankRun(directory, run_spec((4,), steps=5), 1, SingleProcessWorld(), events).train()
    client.stop_server(directory)
    holder.join()
    written = [event.get("reason") or event.get("step") for event in phone.events("run")]
    assert written[2:-2] == [1, 2, "p1-01 (sw1:1) pauses: processor at 96 °C", 3, "p1-01 (sw1:1) resumes", 4, 5]
