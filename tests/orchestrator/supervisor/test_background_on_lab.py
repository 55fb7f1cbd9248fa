"""Runs that nobody is attached to: what ends of this computer's processes, and what the run survives.

The table in docs/guide/running.md names these tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.labs import CLUSTERCTL, TestLab, eventually, running_lab
from tests.orchestrator.launch.test_on_lab import answer, states
from tests.orchestrator.supervisor.test_recovery_on_lab import (
    WORK,
    assert_all_completed,
    blame,
    holds_checkpoint,
    incidents_of,
    launched,
    rank_of,
    runs_of,
    steps_of,
    summary,
    trains,
)

pytestmark = pytest.mark.lab

PHONES = ("p1-01", "p1-02", "p2-01", "p2-02")


def record_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "record.json").read_text())
    return found


def is_over(run: Path) -> bool:
    return record_of(run)["state"] in {"done", "failed", "stopped"}


def await_done(run: Path, steps: int) -> None:
    """No step is repeated. Those that a head phone had not reported when it died are missing."""
    eventually(lambda: is_over(run), 180)
    record, reported = record_of(run), steps_of(run)
    assert (record["state"], record["step"]) == ("done", steps), record["failure"]
    assert reported == sorted(set(reported))
    assert reported[-1] == steps


@contextmanager
def detached(lab: TestLab, *flags: str, at_step: int = 10) -> Iterator[Path]:
    """A run that nobody is attached to."""
    run = lab.state / "clusters/lab/runs" / answer(lab, *WORK, *flags, "--detach")["run_id"]
    try:
        eventually(lambda: max(steps_of(run), default=0) >= at_step)
        yield run
    finally:
        lab.clusterctl("stop", run.name, "--discard", check=False)


@contextmanager
def in_terminal(lab: TestLab, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """clusterctl in a terminal of its own, and the file descriptor that closes the terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*CLUSTERCTL, *arguments],
        env=lab.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  (this process has no threads)
    )
    os.close(theirs)
    with process:
        try:
            yield process, ours
        finally:
            process.kill()


# ------------------------------------------------------------------------------------- what ends on this computer


def test_launch_killed_then_a_phone_dies(provisioned_lab4: TestLab) -> None:
    """Nobody is attached when the run ends: its checkpoint is here all the same, and no longer on the phones."""
    lab = provisioned_lab4
    with launched(lab, "--steps", "200") as (process, run):
        os.kill(process.pid, signal.SIGKILL)
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        await_done(run, 200)
    assert blame(incidents_of(run)[0]) == ("restarting", "rank_killed", ["p2-01"])
    assert (run / "checkpoint-00000200.safetensors").exists()
    assert not any("safetensors" in lab.on(phone, "ls", f".clusterctl/runs/{run.name}").stdout for phone in PHONES)
    found = answer(lab, "attach", run.name)
    assert (found["state"], found["checkpoint"]) == ("done", str(run / "checkpoint-00000200.safetensors"))


def test_terminal_closed_then_a_phone_dies(provisioned_lab4: TestLab) -> None:
    lab, before = provisioned_lab4, runs_of(provisioned_lab4)
    with in_terminal(lab, *WORK, "--steps", "200") as (process, terminal):
        eventually(lambda: bool(runs_of(lab) - before))
        (run,) = runs_of(lab) - before
        eventually(lambda: max(steps_of(run), default=0) >= 10)
        os.close(terminal)
        assert process.wait(30) == -signal.SIGHUP
    lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
    await_done(run, 200)


@pytest.mark.parametrize("command", ["unit", "runs"])
def test_host_reboots_while_a_phone_dies(provisioned_lab4: TestLab, command: str) -> None:
    """After the boot, systemd starts the supervisor again; without systemd, the next command that shows runs does."""
    lab = provisioned_lab4
    with launched(lab, "--steps", "200") as (process, run):
        os.kill(process.pid, signal.SIGKILL)
        lab.kill_supervisor()
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        if command == "unit":
            lab.start_supervisor()
        else:
            lab.clusterctl(command)
        await_done(run, 200)
    assert blame(incidents_of(run)[0]) == ("restarting", "rank_killed", ["p2-01"])


def test_supervisor_killed_while_attached(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "300") as (process, run):
        first = lab.supervisor_pid
        lab.kill_supervisor()
        eventually(lambda: lab.supervisor_pid not in {None, first})
        lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
        assert summary(process)["state"] == "done"
    assert_all_completed(run, 300)


def test_launch_killed_while_it_stages(provisioned_lab4: TestLab) -> None:
    """There is no run yet: the supervisor records that it was never started, or supervises it if it was."""
    lab, before = provisioned_lab4, runs_of(provisioned_lab4)
    with lab.started(*WORK, "--steps", "20") as process:
        eventually(lambda: bool(runs_of(lab) - before))
        os.kill(process.pid, signal.SIGKILL)
    (run,) = runs_of(lab) - before
    eventually(lambda: is_over(run))
    record = record_of(run)
    assert record["state"] == "done" or "never started" in record["failure"]["message"]


# ------------------------------------------------------------------------------------------------ what ends of phones


def test_head_lost_with_nobody_attached(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "200") as run:
        lab.clusterctl("lab", "power", "p1-01", "off")
        try:
            await_done(run, 200)
        finally:
            lab.clusterctl("lab", "power", "p1-01", "on")
    eventually(lambda: states(lab) == ["ready"] * 4)


@pytest.mark.slow
def test_too_few_phones_are_waited_for(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "200", "--min-phones", "4") as run:
        lab.clusterctl("lab", "set", "p2-02", "link=down")
        try:
            eventually(lambda: record_of(run)["state"] == "interrupted")
            assert "at least 4 needed" in record_of(run)["failure"]["message"]
            refused = lab.clusterctl("launch", "--resume", run.name, check=False)
            assert f"clusterctl stop {run.name}" in refused.stderr
        finally:
            lab.clusterctl("lab", "set", "p2-02", "link=up")
        await_done(run, 200)


@pytest.mark.slow
def test_all_phones_lose_power_with_nobody_attached(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "300", "--checkpoint-every", "20", at_step=45) as run:
        for state in ("off", "on"):
            for phone in PHONES:
                lab.clusterctl("lab", "power", phone, state)
        eventually(lambda: is_over(run), 180)
    assert record_of(run)["state"] == "done"


# ----------------------------------------------------------------------------------------------- watching and stopping


def test_two_viewers_see_the_same_run(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "100") as (process, run):
        second = answer(lab, "attach", run.name)
        first = summary(process)
    assert first == second
    assert first["state"] == "done"


def test_runs_and_status_show_the_supervisor(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "100000") as run:
        shown = answer(lab, "status")["supervisor"]
        assert (shown["pid"], shown["runs"]) == (lab.supervisor_pid, [run.name])
        assert f"supervisor: process {lab.supervisor_pid}" in lab.clusterctl("runs").stdout
        assert [each["supervised"] for each in answer(lab, "runs") if each["run_id"] == run.name] == [True]


@pytest.mark.parametrize("supervisor", ["alive", "dead", "recovering"])
def test_stop_is_not_mistaken_for_a_failure(provisioned_lab4: TestLab, supervisor: str) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "100000") as run:
        if supervisor == "dead":
            lab.kill_supervisor()
        if supervisor == "recovering":
            lab.on("p2-01", "kill", "-9", rank_of(lab, "p2-01", run))
            eventually(lambda: record_of(run)["state"] == "recovering")
        stopped = answer(lab, "stop", run.name)
        assert stopped["state"] == "stopped"
        assert not any(trains(lab, phone) or holds_checkpoint(lab, phone) for phone in PHONES)
        attempts = record_of(run)["attempt"]
        eventually(lambda: run.name not in (answer(lab, "status")["supervisor"] or {"runs": []})["runs"])
        assert (record_of(run)["state"], record_of(run)["attempt"]) == ("stopped", attempts)


def test_a_stop_request_is_carried_out_even_if_the_command_was_killed(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "100000") as run:
        (run / "stop").touch()
        eventually(lambda: is_over(run))
        assert record_of(run)["state"] == "stopped"
        assert not any(trains(lab, phone) for phone in PHONES)


def test_lab_down_ends_the_supervisor_and_its_runs() -> None:
    with running_lab(2) as lab:
        lab.clusterctl("provision")
        run = lab.state / "clusters/lab/runs" / answer(lab, *WORK, "--steps", "100000", "--detach")["run_id"]
        pid = lab.supervisor_pid
        assert pid is not None
        lab.clusterctl("lab", "down", "--force")
        assert lab.supervisor_pid is None
        command = Path(f"/proc/{pid}/cmdline")
        assert not command.exists() or not command.read_bytes(), "it has ended"
        assert record_of(run)["state"] == "stopped"


# ------------------------------------------------------------------------------------------------------- a long night


def survive(lab: TestLab, phones: tuple[str, ...], *, minutes: float, every_s: float) -> None:
    """Nobody is attached; a phone dies every so often, the head phone among them, and comes back. The run reaches its
    last step."""
    pace = answer(lab, *WORK, "--steps", "100")
    steps = round(minutes * 60 / (pace["seconds"] / 100))
    flags = ("--steps", str(steps), "--min-phones", "2", "--max-restarts", "200", "--detach")
    run = lab.state / "clusters/lab/runs" / answer(lab, *WORK, *flags)["run_id"]
    deaths = 0
    for phone in cycle(phones):
        dies_at = time.monotonic() + every_s
        eventually(lambda at=dies_at: is_over(run) or time.monotonic() > at, every_s + 60)  # type: ignore[misc]
        if is_over(run):
            break
        deaths, attempt = deaths + 1, record_of(run)["attempt"]
        lab.clusterctl("lab", "power", phone, "off")
        eventually(lambda last=attempt: is_over(run) or record_of(run)["attempt"] > last)  # type: ignore[misc]
        lab.clusterctl("lab", "power", phone, "on")
    await_done(run, steps)
    assert deaths >= 1


def test_a_detached_run_survives_deaths(provisioned_lab4: TestLab) -> None:
    survive(provisioned_lab4, PHONES, minutes=0.3, every_s=6)
    eventually(lambda: states(provisioned_lab4) == ["ready"] * 4)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize(("minutes", "every_s"), [(30.0, 180.0)])
def test_a_detached_run_survives_a_long_night(minutes: float, every_s: float) -> None:
    with running_lab(6, 2) as lab:
        lab.clusterctl("provision")
        names = tuple(phone["name"] for phone in answer(lab, "lab", "status")["phones"])
        survive(lab, names, minutes=minutes, every_s=every_s)
