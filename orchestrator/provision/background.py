"""Long work on a phone that outlives its connection: started detached, asked about until it is done.

An upgrade may replace the very sshd that carries it; a laptop may be closed. The work goes on, and the next
provision finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.errors import PhoneError
from orchestrator.provision.resources import script
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_ASK_SECONDS: Final = 20  # one question waits this long on the phone before it says "still running"
_ALREADY_RUNNING: Final = "already_running"  # the answer of job.sh
_PATIENCE: Final = 90.0  # a phone may be out of reach this long while its sshd is replaced

Connect = Callable[[], "PhoneConnection"]


@dataclass(frozen=True)
class Job:
    rc: int
    log: str  # its last lines


def run_in_background(connect: Connect, name: str, body: str, *args: str, limit: float) -> Job:
    """Runs a script from `provisioning/scripts` detached. Over `limit` seconds it is ended and PhoneError raised."""
    deadline = time.monotonic() + limit
    while True:
        started = connect().script(script("job"), "start", name, script(body), *args, check=True)
        job = _wait(connect, name, deadline, limit)
        if started.stdout.strip() != _ALREADY_RUNNING:  # else it was an earlier run's, started for other circumstances
            return job


def _wait(connect: Connect, name: str, deadline: float, limit: float) -> Job:
    while time.monotonic() < deadline:
        if job := _ask(connect, name, deadline):
            return job
    connect().script(script("job"), "stop", name)
    raise PhoneError(
        f"{name}: not done after {limit / 60:.0f} minutes, ended", code=ErrorCode.TIMED_OUT, remedy="run it again"
    )


def _ask(connect: Connect, name: str, deadline: float) -> Job | None:
    """The job's end, or None while it runs."""
    give_up = min(deadline, time.monotonic() + _PATIENCE)
    while True:
        try:
            answer = connect().script(script("job"), "wait", name, str(_ASK_SECONDS), timeout=_ASK_SECONDS + 30.0)
            return _parse(answer.stdout, name)
        except PhoneError:
            if time.monotonic() > give_up:
                raise
            time.sleep(2.0)


def _parse(answer: str, name: str) -> Job | None:
    state, _, log = answer.partition("\n")
    word, _, rc = state.partition(" ")
    if word == "running":
        return None
    if word == "ended" and rc.isdigit():
        return Job(int(rc), log)
    raise PhoneError(
        f"{name}: the phone ended it before it was done",
        code=ErrorCode.KILLED,
        remedy="did the phone restart, or Android kill Termux? Exempt Termux from battery optimisation, run it again",
    )
