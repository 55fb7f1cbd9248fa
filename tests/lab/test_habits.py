"""Android's habits, each as a process on the phone meets it: switched on, seen; switched off, gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet import Fleet
from orchestrator.inventory import load
from orchestrator.lab.faults import change, set_power
from orchestrator.lab.network import LabNetwork
from orchestrator.lab.spec import Mode
from orchestrator.paths import ClusterState
from tests.labs import TestLab, namespaces_missing

pytestmark = [pytest.mark.lab, pytest.mark.skipif(namespaces_missing() is not None, reason=str(namespaces_missing()))]

PHONE = "p2-02"
PREFIX = "/data/data/com.termux/files/usr"
TMPDIR = f"{PREFIX}/tmp"  # noqa: S108 (a path on the phone)


@contextmanager
def habit(lab: TestLab, setting: str, healthy: str) -> Iterator[None]:
    """Set twice: a habit that is there already must not mind."""
    change(lab.directory, PHONE, [setting])
    change(lab.directory, PHONE, [setting])
    try:
        yield
    finally:
        change(lab.directory, PHONE, [healthy])


@pytest.fixture
def lab(lab4: TestLab, monkeypatch: pytest.MonkeyPatch) -> TestLab:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(lab4.state))
    return lab4


def over_ssh(lab: TestLab, script: str) -> str:
    """What a session prints, errors included: sessions inherit what sshd was started with."""
    phones = (load(lab.inventory).phone(PHONE),)
    with Fleet(phones, ClusterState("lab"), LabNetwork(lab.directory), trust_new=True) as fleet:
        outcomes = fleet.map(lambda connection: connection.run(["/system/bin/sh", "-c", f"exec 2>&1\n{script}"]).stdout)
    assert outcomes.ok, outcomes
    return "".join(text for _, text in outcomes.values())


def on_phone(lab: TestLab, script: str) -> str:
    done = lab.on(PHONE, "bash", "-c", f"exec 2>&1\n{script}", check=False)
    return done.stdout


def test_an_sshd_that_was_not_started_by_termux(lab: TestLab) -> None:
    variables = 'echo "$PATH|$PREFIX|$TMPDIR|$LANG"'
    with habit(lab, "environment=bare", "environment=termux"):
        assert over_ssh(lab, variables) == "/system/bin|||\n"
        assert "not found" in over_ssh(lab, "dpkg --version")
    assert over_ssh(lab, variables) == f"{PREFIX}/bin|{PREFIX}|{TMPDIR}|en_US.UTF-8\n"


def test_no_place_for_temporary_files(lab: TestLab) -> None:
    look = 'echo "$TMPDIR"; touch $PREFIX/tmp/x && rm $PREFIX/tmp/x && echo written'
    with habit(lab, "tmpdir=missing", "tmpdir=ok"):
        assert "Permission denied" in over_ssh(lab, look)
        assert over_ssh(lab, 'echo "$TMPDIR"') == "\n"
    assert over_ssh(lab, look) == f"{TMPDIR}\nwritten\n"


def test_a_second_interface_that_leads_nowhere(lab: TestLab) -> None:
    addresses = "/system/bin/ip -4 -br address"
    with habit(lab, "interface=extra", "interface=single"):
        assert "10.200.4.2/30" in on_phone(lab, addresses)
        assert on_phone(lab, "timeout 0.5 bash -c '</dev/tcp/10.200.4.1/22'; echo $?") == "124\n"
    assert "10.200" not in on_phone(lab, addresses)


def test_routing_that_lets_in_and_not_out(lab: TestLab) -> None:
    call = "timeout 5 bash -c '</dev/tcp/10.77.1.1/8022' && echo out"
    with habit(lab, "routing=inbound", "routing=both"):
        assert "unreachable" in over_ssh(lab, call)  # and ssh came in
        set_power(lab.directory, PHONE, "off")
        set_power(lab.directory, PHONE, "on")
        assert "unreachable" in on_phone(lab, call)
    assert on_phone(lab, call) == "out\n"


@pytest.mark.parametrize("wrong", ["environment=nice", "routing=", "tmpdir=full", "enviroment=bare"])
def test_a_wrong_value_is_refused(lab: TestLab, wrong: str) -> None:
    with pytest.raises(UsageError):
        change(lab.directory, PHONE, ["interface=extra", wrong])
    assert "rmnet" not in on_phone(lab, "/system/bin/ip -br link")


def test_what_needs_namespaces_says_so_without_them(loopback_lab: TestLab) -> None:
    for setting in ("interface=extra", "environment=bare"):
        with pytest.raises(ClusterctlError, match="namespaces"):
            change(loopback_lab.directory, "p1-02", [setting])
    assert loopback_lab.mode is Mode.LOOPBACK
