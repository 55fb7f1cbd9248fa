"""Runs on the head phone: they outlive the process that started them, and their end is always reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phone_agent.contract import layout
from phone_agent.contract.startup import StartupPhase
from phone_agent.device import process
from phone_agent.job import postmortem
from phone_agent.job import state as run_state
from phone_agent.memckpt import client
from tests.phone_agent.phones import AGENT, Phone, run_spec

MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none")
SHELL = ("bash", "-c")


def started(phone: Phone, run_id: str) -> int:
    done = phone.agent("start", run_id)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["pid"])


def followed(phone: Phone, run_id: str, offset: int = 0) -> list[dict[str, Any]]:
    lines = phone.agent("follow", run_id, "--offset", str(offset)).stdout.splitlines()
    return [event for event in map(json.loads, lines) if event["event"] != "heartbeat"]


def state_of(phone: Phone, run_id: str) -> run_state.RunState:
    state = run_state.read(phone.run_dir(run_id))
    assert state is not None
    return state


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "waited for minutes"
        time.sleep(0.05)


@pytest.fixture
def stage(phone: Phone) -> Iterator[Callable[..., Path]]:
    """Stages a run; its processes are ended after the test."""
    directories: list[Path] = []

    def _stage(*argv: str, steps: int = 3) -> Path:
        directories.append(phone.stage(run_spec((2,), steps=steps), argv))
        return directories[-1]

    yield _stage
    for directory in directories:
        phone.agent("stop", directory.name)
        phone.agent("cleanup", directory.name, "--discard-state")


def test_run_finishes_without_the_process_that_started_it(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*MPIRUN, "-np", "1", *AGENT, "train", "run")
    pid = started(phone, "run")
    events = followed(phone, "run")
    assert [event["event"] for event in events] == [
        "start",
        "comm_plan",
        "step",
        "step",
        "step",
        "checkpoint",
        "done",
        "end",
    ]
    assert (events[-1]["state"], events[-1]["rc"]) == ("done", 0)
    state = state_of(phone, "run")
    assert state.process is not None
    assert state.process.pid == pid
    assert events[-1]["offset"] == (directory / layout.EVENTS_FILE).stat().st_size
    listed = json.loads(phone.agent("runs").stdout)
    assert listed == [{"id": "run", "attempt": 0, "state": "done", "step": 3, "head": True}]
    assert json.loads(phone.agent("telemetry").stdout)["run"] == listed[0]


def test_a_rank_records_the_phases_of_its_start(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*MPIRUN, "-np", "1", *AGENT, "train", "run")
    assert json.loads(phone.agent("probe", "run").stdout)["phase"] is None
    started(phone, "run")
    followed(phone, "run")
    log = [json.loads(line) for line in (directory / layout.STARTUP_FILE).read_text().splitlines()]
    assert [entry["phase"] for entry in log] == list(StartupPhase)
    assert next(entry["expected_s"] for entry in log if entry["phase"] == StartupPhase.FIRST_STEP) > 0
    assert json.loads(phone.agent("probe", "run").stdout)["phase"] == StartupPhase.TRAINING


def test_follow_resumes_from_an_offset(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*SHELL, "true")
    first, second = '{"event": "start"}\n', '{"event": "done"}\n'
    (directory / layout.EVENTS_FILE).write_text(first + second)
    started(phone, "run")
    assert [event["event"] for event in followed(phone, "run", offset=len(first))] == ["done", "end"]


def test_follow_waits_for_the_file_and_for_complete_lines(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*SHELL, "sleep 600")
    started(phone, "run")
    with subprocess.Popen([*AGENT, "follow", "run"], env=phone.env, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["event"] == "heartbeat"
        with (directory / layout.EVENTS_FILE).open("a") as events:
            for part in ('{"event": "st', 'art"}\n{"event": "step"}\n{"ev'):
                events.write(part)
                events.flush()
                time.sleep(0.3)
        lines = filter(lambda event: event["event"] != "heartbeat", map(json.loads, follower.stdout))
        assert next(lines)["event"] == "start"
        assert next(lines)["event"] == "step"
        phone.agent("stop", "run")
        assert next(lines)["state"] == "stopped"
        assert follower.wait(240) == 0


def test_follow_ends_when_its_reader_disconnects(phone: Phone, stage: Callable[..., Path]) -> None:
    stage(*SHELL, "sleep 600")
    started(phone, "run")
    with subprocess.Popen([*AGENT, "follow", "run"], env=phone.env, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        follower.stdout.readline()
        follower.stdout.close()
        assert follower.wait(240) == 1


def test_attempt_starts_only_once(phone: Phone, stage: Callable[..., Path]) -> None:
    stage(*SHELL, "true")
    started(phone, "run")
    again = phone.agent("start", "run")
    assert again.returncode == 1
    assert "this attempt of run run was already started" in again.stderr


@pytest.mark.parametrize("name", [layout.RUN_FILE, layout.LAUNCH_FILE, layout.HOSTFILE])
def test_run_with_a_missing_file_does_not_start(phone: Phone, stage: Callable[..., Path], name: str) -> None:
    directory = stage(*SHELL, "true")
    (directory / name).unlink()
    done = phone.agent("start", "run")
    assert done.returncode == 1
    assert f"lacks {name}: stage the run again" in done.stderr
    assert run_state.read(directory) is None


def test_run_with_files_of_another_run_does_not_start(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*SHELL, "true")
    other = run_spec((2,), run_id="other")
    (directory / layout.RUN_FILE).write_text(other.to_json())
    assert "has files from two runs, other and run" in phone.agent("start", "run").stderr


def test_missing_mpirun_is_reported_at_once(phone: Phone, stage: Callable[..., Path]) -> None:
    stage("no-such-mpirun")
    done = phone.agent("start", "run")
    assert done.returncode == 1
    assert "no-such-mpirun" in done.stderr
    *_, error, end = followed(phone, "run")
    assert "cannot start mpirun" in error["message"]
    assert (end["state"], end["rc"]) == ("failed", 127)


def test_error_of_a_rank_appears_in_the_events_of_the_head_phone(phone: Phone, stage: Callable[..., Path]) -> None:
    stage(*MPIRUN, "-np", "2", *AGENT, "train", "run")
    started(phone, "run")
    *errors, end = followed(phone, "run")
    assert {error["event"] for error in errors} == {"error"}
    assert "mpirun started 2 ranks, run.json has 1" in errors[0]["message"]
    assert (end["state"], end["rc"]) == ("failed", 1)


def test_unexplained_failure_reports_the_last_output(phone: Phone, stage: Callable[..., Path]) -> None:
    stage(*SHELL, "echo could not reach 10.77.1.9; exit 3")
    started(phone, "run")
    error, end = followed(phone, "run")
    assert "failed with exit code 3" in error["message"]
    assert "could not reach 10.77.1.9" in error["message"]
    assert end["rc"] == 3


def test_stop_ends_mpirun_and_its_ranks(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*MPIRUN, "-np", "1", *AGENT, "train", "run", steps=1_000_000)
    leader = started(phone, "run")
    until(lambda: (directory / layout.EVENTS_FILE).exists() and len(phone.events("run")) > 2)
    ranks = process.session_members(leader)
    assert len(ranks) >= 2
    assert json.loads(phone.agent("stop", "run").stdout) == {"stopped": True, "state": "stopped"}
    assert process.session_members(leader) == []
    assert followed(phone, "run")[-1]["state"] == "stopped"
    assert json.loads(phone.agent("stop", "run").stdout) == {"stopped": False, "state": "stopped"}


def test_a_requested_stop_ends_with_a_checkpoint_and_keeps_the_memory(phone: Phone, stage: Callable[..., Path]) -> None:
    directory = stage(*MPIRUN, "-np", "1", *AGENT, "train", "run", steps=1_000_000)
    started(phone, "run")
    until(lambda: (directory / layout.EVENTS_FILE).exists() and len(phone.events("run")) > 2)
    assert json.loads(phone.agent("request-stop", "run").stdout) == {"requested": True}
    *_, checkpoint, stop, end = followed(phone, "run")
    assert (checkpoint["event"], stop["event"], end["state"], end["rc"]) == ("checkpoint", "stop", "stopped", 0)
    assert checkpoint["step"] == stop["step"]
    assert client.held_steps(directory)[-1].step == stop["step"]
    assert json.loads(phone.agent("runs").stdout)[0]["state"] == "stopped"
    assert json.loads(phone.agent("request-stop", "run").stdout) == {"requested": False}


def test_run_that_ignores_sigterm_is_killed(
    phone: Phone, stage: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from phone_agent.job.stop import stop

    stage(*SHELL, "trap '' TERM; touch ready; while :; do sleep 0.1; done")
    leader = started(phone, "run")
    until((phone.home / "ready").exists)
    monkeypatch.setenv("HOME", str(phone.home))
    assert stop("run", grace_s=0.5)["stopped"]
    assert process.session_members(leader) == []
    assert state_of(phone, "run").state == "stopped"


def test_run_is_lost_if_the_parent_of_mpirun_dies_and_stop_cleans_up(phone: Phone, stage: Callable[..., Path]) -> None:
    stage(*SHELL, "sleep 600")
    leader = started(phone, "run")
    os.kill(state_of(phone, "run").mpirun_parent.pid, signal.SIGKILL)
    until(lambda: state_of(phone, "run").state == "lost")
    assert followed(phone, "run")[-1]["state"] == "lost"
    assert json.loads(phone.agent("stop", "run").stdout) == {"stopped": True, "state": "stopped"}
    assert process.session_members(leader) == []
    assert state_of(phone, "run").state == "stopped"


def test_reused_pid_is_not_the_parent_of_mpirun() -> None:
    me = process.identify(os.getpid())
    assert me.alive()
    assert me.started is not None
    assert not process.ProcessId(me.pid, me.started - 1).alive()
    assert not process.ProcessId(2**22 + 1, 1).alive()


def test_process_of_another_user_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not process.identify(os.getpid()).alive()


def test_process_name_may_contain_brackets(tmp_path: Path) -> None:
    fields = " ".join(["S", "1", "7", "42", *["0"] * 15, "999", "0"])
    for place in (tmp_path / "7" / "task" / "7", tmp_path / "7"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "stat").write_text(f"7 (a) b (c)) {fields}")
    assert process.identify(7, tmp_path) == process.ProcessId(7, 999)
    assert process.session_members(42, tmp_path) == [7]


def test_other_phones_report_the_state_of_their_rank(phone: Phone) -> None:
    directory = phone.stage(run_spec((2,)))
    assert json.loads(phone.agent("runs").stdout)[0]["state"] == "staged"
    me = process.identify(os.getpid())
    start = {"event": "start", "pid": me.pid, "pid_started": me.started}
    lines = [json.dumps(start), *(json.dumps({"event": "step", "step": step, "pad": "x" * 50}) for step in range(200))]
    log = directory / layout.RANK_EVENTS_FILE
    log.write_text("\n".join(lines) + "\n")
    assert json.loads(phone.agent("runs").stdout) == [
        {"id": "run", "attempt": 0, "state": "running", "step": 199, "head": False}
    ]
    log.write_text("\n".join([json.dumps({**start, "pid_started": 1}), *lines[1:]]) + "\n")
    assert json.loads(phone.agent("runs").stdout)[0]["state"] == "lost"
    log.write_text("\n".join([*lines, '{"event": "error", "message": "x"}']) + "\n")
    assert json.loads(phone.agent("runs").stdout)[0]["state"] == "failed"


@pytest.mark.parametrize("rubbish", ["", "{", "[]", "7", '{"event": 1}', "\x00\x00"])
def test_damaged_run_files_do_not_break_telemetry(phone: Phone, rubbish: str) -> None:
    directory = phone.stage(run_spec((2,)))
    for name in (layout.STATE_FILE, layout.RANK_EVENTS_FILE, layout.EVENTS_FILE):
        (directory / name).write_text(rubbish)
    report = phone.agent("telemetry")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["run"]["id"] == "run"


def test_errors_are_found_in_lines_with_mpirun_tags() -> None:
    lines = ["noise", '[1,3]<stderr>:{"event": "error", "rank": 3}', '{"event": "error", "cut o', '{"event": "step"}']
    assert postmortem.errors_in(lines) == [{"event": "error", "rank": 3}]


def test_start_leaves_no_stream_open(phone: Phone, stage: Callable[..., Path]) -> None:
    """Over SSH an open stdout would keep the session open: reading to its end must not wait for the run."""
    stage(*SHELL, "sleep 600")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)",
            *AGENT,
            "start",
            "run",
        ],
        env=phone.env,
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert b"pid" in done.stdout
    assert state_of(phone, "run").state == "running"
