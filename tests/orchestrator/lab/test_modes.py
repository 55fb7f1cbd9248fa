from __future__ import annotations

import os
import sys

import pytest

from orchestrator.errors import UsageError
from orchestrator.lab.modes import MODE_VARIABLE, reserve_network, select_mode, unavailable_reason
from orchestrator.lab.spec import Mode
from tests.labs import CLUSTERCTL, TestLab, running_lab

pytestmark = pytest.mark.lab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to create a restricted container")


def test_an_unknown_mode_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "magic")
    with pytest.raises(UsageError, match="magic") as caught:
        select_mode()
    assert "loopback" in str(caught.value.remedy)


def test_the_best_available_mode_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODE_VARIABLE, raising=False)
    selected, reasons = select_mode()
    better = [mode for mode in Mode if list(Mode).index(mode) < list(Mode).index(selected)]
    assert unavailable_reason(selected) is None
    assert len(reasons) == len(better)
    assert all(unavailable_reason(mode) for mode in better)


def test_loopback_is_always_available() -> None:
    assert unavailable_reason(Mode.LOOPBACK) is None


@needs_root
def test_a_plain_container_falls_back_to_loopback_with_a_warning(tmp_path_factory: pytest.TempPathFactory) -> None:
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
def test_loopback_phones_cannot_read_each_other_s_data(loopback_lab: TestLab) -> None:
    home = loopback_lab.on("p1-01", "printenv", "HOME").stdout.strip()
    loopback_lab.on("p1-01", "bash", "-c", "echo secret > ~/mine")
    assert loopback_lab.on("p1-02", "cat", f"{home}/mine", check=False).returncode != 0
    loopback_lab.on("p1-01", "rm", "mine")


def test_two_loopback_labs_do_not_interfere(loopback_lab: TestLab) -> None:
    with running_lab(1, mode=Mode.LOOPBACK) as other:
        assert other.phone("p1-01")["address"] != loopback_lab.phone("p1-01")["address"]
        other.on("p1-01", "touch", "here")
        assert loopback_lab.on("p1-01", "ls").stdout == ""


def test_two_loopback_labs_that_start_together_get_their_own_networks() -> None:
    first, reservation = reserve_network(Mode.LOOPBACK)
    with reservation:
        second, other = reserve_network(Mode.LOOPBACK)
        other.close()
    third, again = reserve_network(Mode.LOOPBACK)
    again.close()
    assert (first != second, third) == (True, first)


def test_a_loopback_lab_keeps_its_network_while_its_phones_are_off(loopback_lab: TestLab) -> None:
    """The address of the first phone is then free."""
    loopback_lab.clusterctl("lab", "power", "p1-01", "off")
    try:
        octet, reservation = reserve_network(Mode.LOOPBACK)
        reservation.close()
        assert str(loopback_lab.phone("p1-01")["address"]) != f"127.{octet}.1.1"
    finally:
        loopback_lab.clusterctl("lab", "power", "p1-01", "on")
