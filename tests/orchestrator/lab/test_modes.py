from __future__ import annotations

import os
import sys

import pytest

from orchestrator.errors import UsageError
from orchestrator.lab.modes import FORCE_VARIABLE, choose, why_not
from orchestrator.lab.spec import Mode
from tests.labs import CLUSTERCTL, TestLab, running_lab

pytestmark = pytest.mark.lab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a place where root may do less")


def test_a_mode_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "magic")
    with pytest.raises(UsageError, match="magic") as caught:
        choose()
    assert "loopback" in str(caught.value.remedy)


def test_the_best_mode_is_chosen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORCE_VARIABLE, raising=False)
    chosen, objections = choose()
    better = [mode for mode in Mode if list(Mode).index(mode) < list(Mode).index(chosen)]
    assert why_not(chosen) is None
    assert len(objections) == len(better)
    assert all(why_not(mode) for mode in better)


def test_loopback_is_always_possible() -> None:
    assert why_not(Mode.LOOPBACK) is None


@needs_root
def test_in_a_plain_container_it_falls_back_and_says_what_is_lost(tmp_path_factory: pytest.TempPathFactory) -> None:
    lab = TestLab(tmp_path_factory.mktemp("s"))
    try:
        done = lab.run(
            [sys.executable, "-m", "tests.orchestrator.lab.plain_container", *CLUSTERCTL, "lab", "up", "--phones", "2"]
        )
        assert done.returncode == 0
        message = " ".join(done.stderr.split())
        assert "loopback" in message
        assert "no speed limit" in message
        assert lab.on("p1-01", "id", "-u").stdout == "10100\n"
    finally:
        lab.clusterctl("lab", "down")


@needs_root
def test_the_phones_of_a_plain_container_cannot_read_each_others_data(loopback_lab: TestLab) -> None:
    home = loopback_lab.on("p1-01", "printenv", "HOME").stdout.strip()
    loopback_lab.on("p1-01", "bash", "-c", "echo secret > ~/mine")
    assert loopback_lab.on("p1-02", "cat", f"{home}/mine", check=False).returncode != 0
    loopback_lab.on("p1-01", "rm", "mine")


def test_labs_on_the_loopback_interface_keep_out_of_each_others_way(loopback_lab: TestLab) -> None:
    with running_lab(1, mode=Mode.LOOPBACK) as other:
        assert other.phone("p1-01")["address"] != loopback_lab.phone("p1-01")["address"]
        other.on("p1-01", "touch", "here")
        assert loopback_lab.on("p1-01", "ls").stdout == ""
