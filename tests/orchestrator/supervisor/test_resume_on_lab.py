"""Attempts resume from the newest state there is, and one failed call does not end supervision."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.labs import TestLab, eventually
from tests.orchestrator.launch.test_on_lab import answer
from tests.orchestrator.supervisor.test_recovery_on_lab import (
    WORK,
    incidents_of,
    launched,
    runs_of,
    steps_of,
    summary,
)

pytestmark = pytest.mark.lab

OTHERS = ("p1-01", "p1-02", "p2-01")
KILL_THE_NEXT_RANK = 'until pid=$(pgrep -f "^python3 -m phone_agent train"); do sleep 0.02; done; kill -9 $pid'


def messages_of(run: Path, kind: str) -> list[str]:
    path = run / "incidents.jsonl"
    return [each["message"] for each in incidents_of(run) if each["incident"] == kind] if path.exists() else []


def checkpoint_step(run: Path) -> int:
    """Of the newest checkpoint on this computer."""
    return max((int(path.stem.removeprefix("checkpoint-")) for path in run.glob("checkpoint-*.safetensors")), default=0)


@contextmanager
def unplugged(lab: TestLab, phone: str) -> Iterator[Callable[[], None]]:
    """A phone without its cable. The value plugs it in again."""

    def plug_in() -> None:
        lab.clusterctl("lab", "set", phone, "link=up")

    lab.clusterctl("lab", "set", phone, "link=down")
    try:
        yield plug_in
    finally:
        plug_in()


def lose_power(lab: TestLab, *phones: str) -> None:
    for phone in phones:
        lab.clusterctl("lab", "power", phone, "off")


def regain_power(lab: TestLab, *phones: str) -> None:
    for phone in phones:
        lab.clusterctl("lab", "power", phone, "on")


def test_a_rank_killed_while_a_resumed_run_starts(provisioned_lab4: TestLab) -> None:
    """The checkpoint of the parent is the oldest state that the run may start from."""
    lab = provisioned_lab4
    parent = answer(lab, *WORK, "--steps", "30")
    before = runs_of(lab)
    with lab.started("launch", "--resume", parent["run_id"], "--steps", "40", "--json") as process:
        lab.on("p2-01", "bash", "-c", KILL_THE_NEXT_RANK)
        found = summary(process)
    (run,) = runs_of(lab) - before
    assert (found["state"], found["step"]) == ("done", 40)
    assert steps_of(run) == [*range(31, 41)]
    assert "restarting from checkpoint-00000030.safetensors (step 30)" in messages_of(run, "restarting")[0]


@pytest.mark.slow
def test_an_old_holder_returns_after_all_others_lost_their_memory(provisioned_lab4: TestLab) -> None:
    """p2-02 was cut off near step 10. The others went on and wrote checkpoints, then lost power."""
    lab = provisioned_lab4
    with launched(lab, "--steps", "3000", "--checkpoint-every", "40", "--min-phones", "3") as (_, run):
        with unplugged(lab, "p2-02"):
            eventually(lambda: checkpoint_step(run) >= 80)
            lose_power(lab, *OTHERS)
            safe = checkpoint_step(run)
        regain_power(lab, *OTHERS)
        eventually(lambda: bool(steps_of(run, attempt=2)))
        eventually(lambda: checkpoint_step(run) > safe)
    resumed = steps_of(run, attempt=2)[0] - 1
    assert resumed >= safe, "a phone may have a newer checkpoint than this computer"
    assert any(f"(step {resumed})" in message for message in messages_of(run, "state_lost"))


@pytest.mark.slow
def test_the_only_holder_of_the_newest_state_is_excluded(provisioned_lab4: TestLab) -> None:
    """The disk of p2-02 is full; all others lost their memory."""
    lab = provisioned_lab4
    flags = ("--steps", "3000", "--checkpoint-every", "40", "--min-phones", "3")
    with launched(lab, *flags, at_step=50) as (_, run):
        eventually(lambda: checkpoint_step(run) >= 40)
        lose_power(lab, *OTHERS)
        safe = checkpoint_step(run)
        lab.clusterctl("lab", "set", "p2-02", "disk=full")
        try:
            regain_power(lab, *OTHERS)
            eventually(lambda: bool(steps_of(run, attempt=1)))
        finally:
            lab.clusterctl("lab", "set", "p2-02", "disk=free")
    resumed = steps_of(run, attempt=1)[0] - 1
    assert resumed >= safe, "a phone may have a newer checkpoint than this computer"
    (message,) = messages_of(run, "state_lost")
    assert "cannot take part (p2-02 (sw2:2): disk is full" in message
    assert f"(step {resumed})" in message


@pytest.mark.slow
def test_the_next_loss_is_recovered_although_a_phone_could_not_rejoin(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    with launched(lab, "--steps", "100000") as (_, run):
        with unplugged(lab, "p2-02"):
            eventually(lambda: bool(steps_of(run, attempt=1)))
            directory = f".clusterctl/runs/{run.name}/attempt-1"
            lab.on("p1-01", "ln", "-s", "/nonexistent/file", f"{directory}/yield")
        eventually(lambda: bool(messages_of(run, "rejoin_failed")))
        assert messages_of(run, "rejoin_failed")[0].startswith("p2-02 (sw2:2) cannot rejoin yet: ")
        lab.on("p1-02", "kill", "-9", pid_in(lab, "p1-02", directory))
        eventually(lambda: bool(steps_of(run, attempt=2)))
    assert max(steps_of(run, attempt=1)) < min(steps_of(run, attempt=2)) <= max(steps_of(run, attempt=1)) + 2


def pid_in(lab: TestLab, phone: str, directory: str) -> str:
    start: dict[str, Any] = json.loads(lab.on(phone, "head", "-1", f"{directory}/rank.jsonl").stdout)
    return str(start["pid"])
