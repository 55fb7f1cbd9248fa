"""Long-running work on a phone that survives its SSH connection: started detached, then polled.

An upgrade may replace the sshd that carries it, and a laptop may be closed. The work continues, and the next provision
finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.provision.resources import read_script
from phone_agent.contract.errors import ErrorCode

_POLL_SECONDS: Final = 20  # one poll waits this long on the phone before it reports "running"
_ALREADY_RUNNING: Final = "already_running"  # printed by job.sh
_RECONNECT_SECONDS: Final = 90.0  # a phone may be unreachable this long while its sshd is replaced

Connect = Callable[[], "PhoneConnection"]


@dataclass(frozen=True)
class JobResult:
    rc: int
    log: str  # its last lines


def run_in_background(connect: Connect, name: str, body: str, *args: str, limit: float) -> JobResult:
    """Run a script of `provisioning/scripts` detached. After `limit` seconds it is killed and PhoneError is raised."""
    deadline = time.monotonic() + limit
    while True:
        started = connect().script(read_script("job"), "start", name, read_script(body), *args, check=True)
        result = _wait(connect, name, deadline, limit)
        if started.stdout.strip() != _ALREADY_RUNNING:  # a job of an earlier run may have had other arguments
            return result


def _wait(connect: Connect, name: str, deadline: float, limit: float) -> JobResult:
    while time.monotonic() < deadline:
        if result := _poll(connect, name, deadline):
            return result
    connect().script(read_script("job"), "stop", name)
    raise PhoneError(
        f"{name}: not finished after {limit / 60:.0f} minutes, killed",
        code=ErrorCode.TIMED_OUT,
        remedy="run the command again",
    )


def _poll(connect: Connect, name: str, deadline: float) -> JobResult | None:
    """None while the job runs."""
    give_up = min(deadline, time.monotonic() + _RECONNECT_SECONDS)
    while True:
        try:
            answer = connect().script(
                read_script("job"), "wait", name, str(_POLL_SECONDS), timeout=_POLL_SECONDS + 30.0
            )
            return _parse(answer.stdout, name)
        except PhoneError:
            if time.monotonic() > give_up:
                raise
            time.sleep(2.0)


def _parse(answer: str, name: str) -> JobResult | None:
    line, _, log = answer.partition("\n")
    state, _, rc = line.partition(" ")
    if state == "running":
        return None
    if state == "ended" and rc.isdigit():
        return JobResult(int(rc), log)
    raise PhoneError(
        f"{name}: killed on the phone before it finished",
        code=ErrorCode.KILLED,
        remedy="the phone restarted or Android killed Termux: exempt Termux from battery optimization, then retry",
    )
