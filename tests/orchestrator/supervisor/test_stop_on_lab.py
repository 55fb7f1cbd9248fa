"""`stop` keeps the work: the newest step is saved, and `launch --resume` continues with the next one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.labs import TestLab, eventually
from tests.orchestrator.launch.test_on_lab import answer, states
from tests.orchestrator.supervisor.test_background_on_lab import PHONES, detached, in_terminal, record_of
from tests.orchestrator.supervisor.test_recovery_on_lab import holds_checkpoint, rank_of, steps_of, trains

pytestmark = pytest.mark.lab

ENDLESS = ("--steps", "100000")


def assert_saved(lab: TestLab, run: Path, stopped: dict[str, Any]) -> int:
    """The step, which no one has to compute again."""
    step: int = stopped["saved_step"]
    assert stopped["state"] == "stopped"
    assert stopped["step"] == step >= max(steps_of(run))
    assert stopped["checkpoint"] == str(run / f"checkpoint-{step:08}.safetensors")
    assert Path(stopped["checkpoint"]).exists()
    for phone in PHONES:
        assert not trains(lab, phone)
        assert not holds_checkpoint(lab, phone)
        assert "safetensors" not in lab.on(phone, "ls", f".clusterctl/runs/{run.name}").stdout
    return step


def assert_resumes_after(lab: TestLab, run: Path, step: int) -> None:
    eventually(lambda: states(lab) == ["ready"] * 4)
    resumed = answer(lab, "launch", "--resume", run.name, "--steps", str(step + 3))
    assert (resumed["state"], len(resumed["losses"])) == ("done", 3)
    assert steps_of(run.parent / resumed["run_id"]) == [step + 1, step + 2, step + 3]


def test_stop_saves_the_newest_step_and_resume_continues_with_the_next(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS) as run:
        step = assert_saved(lab, run, answer(lab, "stop", run.name))
        shown = lab.clusterctl("attach", run.name, check=False)
        assert f"checkpoint-{step:08}.safetensors" in shown.stdout
        assert f"clusterctl launch --resume {run.name}" in shown.stderr
        assert_resumes_after(lab, run, step)


def test_stop_while_a_rank_is_frozen_saves_what_phones_hold_in_memory(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS) as run:
        lab.kill_supervisor()  # or it would restart the run
        lab.on("p2-01", "kill", "-STOP", rank_of(lab, "p2-01", run))
        done = lab.clusterctl("stop", run.name)
        assert "Saved: step" in done.stderr
        assert f"clusterctl launch --resume {run.name}" in done.stderr
        step = assert_saved(lab, run, answer(lab, "stop", run.name))
        assert_resumes_after(lab, run, step)


@pytest.mark.slow
def test_stop_with_the_head_phone_off(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS) as run:
        lab.kill_supervisor()
        lab.clusterctl("lab", "power", "p1-01", "off")
        try:
            stopped = answer(lab, "stop", run.name)
        finally:
            lab.clusterctl("lab", "power", "p1-01", "on")
        assert stopped["saved_step"] == stopped["step"] >= max(steps_of(run))
        assert_resumes_after(lab, run, stopped["saved_step"])


def test_stop_with_discard_saves_nothing(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS) as run:
        done = lab.clusterctl("stop", run.name, "--discard")
        assert "No step is saved." in done.stderr
        assert record_of(run)["state"] == "stopped"
        assert not any(trains(lab, phone) or holds_checkpoint(lab, phone) for phone in PHONES)
        assert not list(run.glob("*.safetensors"))


def test_ctrl_c_then_s_saves_the_newest_step(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS) as run, in_terminal(lab, "attach", run.name) as (process, terminal):
        output = b""
        while b"Ctrl-C" not in output:
            output += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        while b"detach and let it continue" not in output:
            output += os.read(terminal, 4096)
        os.write(terminal, b"s\n")
        while b"Saved: step" not in output:
            output += os.read(terminal, 4096)
        eventually(lambda: process.poll() is not None)
        assert record_of(run)["state"] == "stopped"
        assert (run / f"checkpoint-{record_of(run)['step']:08}.safetensors").exists()


def test_checkpoints_are_written_by_time(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, *ENDLESS, "--checkpoint-every", "1s") as run:
        eventually(lambda: bool(list(run.glob("checkpoint-*.safetensors"))))


@pytest.mark.slow
def test_attach_lets_a_run_that_waits_continue_with_fewer_phones(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with detached(lab, "--steps", "200", "--min-phones", "4") as run:
        lab.clusterctl("lab", "set", "p2-02", "link=down")
        try:
            eventually(lambda: record_of(run)["state"] == "interrupted")
            for command in ("status", "runs"):
                shown = lab.clusterctl(command, check=False)
                assert "waiting for 1 phone: 3 of 4 can take part, at least 4 needed (--min-phones)" in shown.stdout
                assert f"clusterctl attach {run.name} --min-phones 3" in shown.stderr
            refused = lab.clusterctl("attach", run.name, "--min-phones", "5", check=False)
            assert (refused.returncode, "was launched with 4 phones" in refused.stderr) == (2, True)
            found = answer(lab, "attach", run.name, "--min-phones", "3")
        finally:
            lab.clusterctl("lab", "set", "p2-02", "link=up")
    assert (found["state"], found["step"]) == ("done", 200)
