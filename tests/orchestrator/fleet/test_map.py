"""Many phones at once: results as values, in ring order, whatever happens to some of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import Fleet, PhoneConnection
from orchestrator.fleet.network import DirectNetwork
from orchestrator.fleet.result import Outcome, Status
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.fleet.conftest import RACK
from tests.orchestrator.fleet.servers import Server, free_port, loopback_phone


def test_fifty_phones_at_once_in_ring_order(rack: list[Server], state: ClusterState) -> None:
    phones = [server.phone for server in rack]
    seen: list[Outcome[str]] = []
    with Fleet(phones, state, DirectNetwork(), trust_new=True, workers=RACK) as fleet:
        outcomes = fleet.map(lambda phone: phone.run(["pwd"], check=True).stdout.strip(), on_done=seen.append)
        again = fleet.map(lambda phone: phone.run(["true"]).ok, phones[::-1])
    assert outcomes.ok
    assert [outcome.value for outcome in outcomes] == [str(server.home) for server in rack]
    assert [outcome.phone for outcome in again] == phones[::-1]
    assert {outcome.phone for outcome in seen} == set(phones)


def test_one_connection_a_phone(fleet: Fleet, server: Server) -> None:
    before = server.log.count("Accepted publickey")
    for _ in range(3):
        assert fleet.map(lambda phone: phone.run(["true"])).ok
    assert server.log.count("Accepted publickey") == before + 1


def test_exceptions_become_outcomes(fleet: Fleet) -> None:
    errors = iter(
        [
            PhoneError("full", code=ErrorCode.DISK_FULL, phase="copy", remedy="make room"),
            PhoneError("odd", code=ErrorCode.BAD_ANSWER, phase="packages"),
            ClusterctlError("no mirror"),
            KeyError("battery"),
        ]
    )
    lock = threading.Lock()

    def fail(phone: PhoneConnection) -> None:
        with lock:
            raise next(errors)

    outcomes = fleet.map(fail)
    told = {(outcome.status, outcome.phase, outcome.error, outcome.remedy) for outcome in outcomes}
    assert told == {
        (Status.FAILED, "copy", "full", "make room"),
        (Status.FAILED, "exec", "odd", None),
        (Status.FAILED, "exec", "no mirror", None),
        (Status.FAILED, "exec", "KeyError: 'battery'", None),
    }


def test_reports_come_in_the_calling_thread(fleet: Fleet) -> None:
    threads = set()
    fleet.map(lambda phone: None, on_done=lambda outcome: threads.add(threading.current_thread()))
    assert threads == {threading.current_thread()}


def test_no_phones_no_work(state: ClusterState) -> None:
    with Fleet([], state, DirectNetwork()) as fleet:
        assert len(fleet.map(lambda phone: None)) == 0


def test_one_dead_phone_does_not_hide_the_others(fleet: Fleet, state: ClusterState) -> None:
    dead = loopback_phone(1, free_port(), switch=3)
    with Fleet([*fleet.phones, dead], state, DirectNetwork(), trust_new=True) as more:
        outcomes = more.map(lambda phone: phone.run(["true"]).ok)
    assert [outcome.status for outcome in outcomes] == [Status.OK] * 4 + [Status.UNREACHABLE]


INTERRUPTED = """
import json, os, signal, sys
from orchestrator.fleet import Fleet, FleetInterrupted
from orchestrator.fleet.network import DirectNetwork
from orchestrator.paths import ClusterState
from tests.orchestrator.fleet.servers import loopback_phone

phones = [loopback_phone(number, int(sys.argv[1])) for number in range(1, 7)]
arrived = []

def task(phone):
    return phone.run(["sleep", "0" if phone.phone.port in (2, 4) else "60"]).rc

def on_done(outcome):
    arrived.append(outcome)
    if len(arrived) == 2:
        print("two arrived", flush=True)

try:
    with Fleet(phones, ClusterState("test"), DirectNetwork(), trust_new=True, workers=4) as fleet:
        fleet.map(task, on_done=on_done)
except FleetInterrupted as interrupted:
    print(json.dumps([outcome.status for outcome in interrupted.outcomes]))
    sys.exit(130)
"""


def test_ctrl_c_keeps_what_arrived(rack: list[Server], state: ClusterState) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(rack[0].phone.ssh_port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "two arrived\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=30)  # the tasks would have slept for a minute
    assert (program.returncode, err) == (130, "")
    assert json.loads(out) == ["cancelled", "ok", "cancelled", "ok", "cancelled", "cancelled"]


def test_the_light_half_imports_no_ssh() -> None:
    program = """
import sys
import orchestrator.fleet.network, orchestrator.fleet.result, orchestrator.fleet.host_keys
assert not {"paramiko", "fabric", "cryptography"} & set(sys.modules)
from orchestrator.fleet import Fleet
assert "paramiko" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_names_are_attribute_errors() -> None:
    import orchestrator.fleet

    with pytest.raises(AttributeError, match="Navy"):
        _ = orchestrator.fleet.Navy
