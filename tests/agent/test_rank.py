"""A rank's end."""

from __future__ import annotations

from phone_agent import layout
from tests.agent.phones import AGENT, Phone, mpirun, run_spec


def test_a_timeline_that_cannot_be_written_is_a_warning(phone: Phone) -> None:
    directory = phone.stage(run_spec((4,), steps=1))
    (directory / layout.TIMELINE_FILE).mkdir()
    done = mpirun([phone], *AGENT, "train", "run")
    assert done.returncode == 0, done.stderr
    events = phone.events("run")
    assert [event["message"] for event in events if event["event"] == "warn"] == [
        "p1-01 (sw1:1): timeline.jsonl was not written: Is a directory"
    ]
    assert events[-1]["event"] == "done"
