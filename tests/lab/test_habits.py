"""Android's habits, each as a process on the phone meets it: switched on, seen; switched off, gone."""

from __future__ import annotations

import json
import re
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
from tests.labs import TestLab, eventually, namespaces_missing

pytestmark = [pytest.mark.lab, pytest.mark.skipif(namespaces_missing() is not None, reason=str(namespaces_missing()))]

PHONE = "p2-02"
PYTHON = "/apex/host/bin/python3"  # there before the package is installed
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


def python(lab: TestLab, code: str) -> str:
    return lab.on(PHONE, PYTHON, "-c", code).stdout


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


def _cores(lab: TestLab) -> dict[str, set[int]]:
    """Capacities of the cores a process may use, and of all."""
    every = [int(word) for word in on_phone(lab, "cat /sys/devices/system/cpu/cpu*/cpu_capacity").split()]
    allowed = json.loads(python(lab, "import os; print(list(os.sched_getaffinity(0)))"))
    return {"all": set(every), "allowed": {every[core] for core in allowed}}


def _frequencies(lab: TestLab) -> tuple[int, int]:
    """Now and at most."""
    now, most = on_phone(
        lab, "cd /sys/devices/system/cpu/cpufreq/policy0; cat scaling_cur_freq cpuinfo_max_freq"
    ).split()
    return int(now), int(most)


SPIN = "import time; t = time.monotonic()\nwhile time.monotonic() < t + 1: pass\nprint(time.process_time())"


def test_an_app_in_the_background_is_kept_off_the_big_cores(lab: TestLab) -> None:
    with habit(lab, "cpuset=background", "cpuset=foreground"):
        cores = _cores(lab)
        assert max(cores["allowed"]) < max(cores["all"])
        assert float(python(lab, SPIN)) < 0.8
    cores = _cores(lab)
    assert cores["allowed"] == {max(cores["all"])}


def test_a_phone_that_is_throttled(lab: TestLab) -> None:
    with habit(lab, "throttle=0.3", "throttle=1"):
        now, most = _frequencies(lab)
        assert now == pytest.approx(0.3 * most, abs=1)
        assert float(python(lab, SPIN)) < 0.7
        change(lab.directory, PHONE, ["cpuset=background", "cpuset=foreground"])
        assert _frequencies(lab)[0] == now
    now, most = _frequencies(lab)
    assert now == most


def test_sleeps_that_take_longer_than_asked_for(lab: TestLab) -> None:
    def seconds(asked: float) -> float:
        started, ended = on_phone(lab, f"date +%s.%N; sleep {asked}; date +%s.%N").split()
        return float(ended) - float(started)

    with habit(lab, "sleeps=stretched", "sleeps=normal"):
        assert seconds(1) > 1.5
    eventually(lambda: seconds(0.1) < 1.5)


def test_more_processes_than_android_allows(lab: TestLab) -> None:
    crowd = "for i in $(seq 36); do setsid sleep 4343 & done >/dev/null 2>&1"
    count = "pgrep -c -x sleep"
    with habit(lab, "phantom=on", "phantom=off"):
        on_phone(lab, crowd)
        eventually(lambda: int(on_phone(lab, count)) <= 32)
        eventually(lambda: lab.phone(PHONE)["sshd"] is False)  # the oldest of all
        assert re.search(
            r"ActivityManager: Killing PhantomProcessRecord \{\w+ \d+:sshd/u0a\d+\}: Trimming phantom processes",
            on_phone(lab, "/system/bin/logcat -d"),
        )
    on_phone(lab, "pkill -x sleep")
    change(lab.directory, PHONE, ["sshd=up"])
    on_phone(lab, crowd)
    assert int(on_phone(lab, count)) == 36
    on_phone(lab, "pkill -x sleep")
    eventually(lambda: lab.phone(PHONE)["sshd"] is True)


def test_system_v_calls_that_kill(lab: TestLab) -> None:
    ask = f"{PYTHON} -c 'import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))'; echo $?"
    with habit(lab, "sysv=kill", "sysv=denied"):
        assert over_ssh(lab, ask).endswith("159\n")
    assert over_ssh(lab, ask) == "-1\n0\n"


def test_files_with_one_name_only(lab: TestLab) -> None:
    link = "cd $HOME; touch one; ln one two; ln -s one three; cat three && echo symbolic; rm -f one two three"
    with habit(lab, "links=denied", "links=ok"):
        refused = over_ssh(lab, link)
        assert "Permission denied" in refused
        assert refused.endswith("symbolic\n")
    assert over_ssh(lab, link) == "symbolic\n"


@pytest.mark.parametrize(
    "wrong", ["environment=nice", "throttle=0", "throttle=2", "routing=", "tmpdir=full", "enviroment=bare"]
)
def test_a_wrong_value_is_refused(lab: TestLab, wrong: str) -> None:
    with pytest.raises(UsageError):
        change(lab.directory, PHONE, ["interface=extra", wrong])
    assert "rmnet" not in on_phone(lab, "/system/bin/ip -br link")


def test_what_needs_namespaces_says_so_without_them(loopback_lab: TestLab) -> None:
    for setting in ("interface=extra", "environment=bare"):
        with pytest.raises(ClusterctlError, match="namespaces"):
            change(loopback_lab.directory, "p1-02", [setting])
    assert loopback_lab.mode is Mode.LOOPBACK
