"""What mpirun prints when a run breaks, and whom that blames."""

from __future__ import annotations

import pytest

from orchestrator.runs.diagnosis import diagnose
from orchestrator.runs.events import parse_event
from tests.runs.samples import event, spec

LOST_DAEMON = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[63204,0],0] on node localhost
  Remote daemon: [[63204,0],2] on node 10.77.1.3

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
"""
NO_ROUTE = "ssh: connect to host 10.77.1.4 port 8022: No route to host\n"
KILLED = """\
--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node 10.77.1.2 exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
ENDED = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[12875,1],2]
  Exit code:    1
"""
DENIED = "termux@10.77.1.2: Permission denied (publickey).\n"


@pytest.mark.parametrize(
    ("log", "headline"),
    [
        (LOST_DAEMON, "p1-03 (sw1:3): lost contact: power, cable or a killed Termux"),
        (NO_ROUTE, "p1-04 (sw1:4): the head phone cannot reach it (No route to host)"),
        (KILLED, "p1-02 (sw1:2): its rank was killed (signal 9 (Killed))"),
        (ENDED, "p1-03 (sw1:3): its rank ended with an error"),
        (DENIED, "p1-02 (sw1:2): the head phone may not log in to it"),
        ("something else\nlast word", "last word"),
        ("", "mpirun left no word"),
    ],
)
def test_mpirun_s_words_lead_to_a_phone_and_port(log: str, headline: str) -> None:
    assert diagnose(spec(), None, log).headline == headline


def test_a_phone_s_own_error_goes_before_what_mpirun_noticed_later() -> None:
    error = parse_event(event("error", 1.0, phone="p1-04", rank=3, message="shard is damaged\x1b[2J"))
    found = diagnose(spec(), error, KILLED)
    assert found.headline == "p1-04 (sw1:4): shard is damaged\\x1b[2J"
    assert any("signal 9" in line for line in found.tail)


def test_an_unknown_address_blames_nobody() -> None:
    assert diagnose(spec(), None, NO_ROUTE.replace("10.77.1.4", "192.0.2.1")).phone is None
