"""Each quirk of Android, as seen by a process on the phone: visible when set, gone when reset."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet import Fleet
from orchestrator.inventory import load
from orchestrator.lab.network import LabNetwork
from orchestrator.lab.settings import apply_settings, set_power
from orchestrator.lab.spec import Mode
from orchestrator.paths import ClusterState
from tests.labs import TestLab, eventually, namespaces_missing

pytestmark = [pytest.mark.lab, pytest.mark.skipif(namespaces_missing() is not None, reason=str(namespaces_missing()))]

PHONE = "p2-02"
PYTHON = "/apex/host/bin/python3"  # available before the package is installed
PREFIX = "/data/data/com.termux/files/usr"
TMPDIR = f"{PREFIX}/tmp"  # noqa: S108 (a path on the phone)


@contextmanager
def quirk(lab: TestLab, setting: str, default: str) -> Iterator[None]:
    """Set a quirk, twice to test that this is idempotent, and reset it afterwards."""
    apply_settings(lab.directory, PHONE, [setting])
    apply_settings(lab.directory, PHONE, [setting])
    try:
        yield
    finally:
        apply_settings(lab.directory, PHONE, [default])


@pytest.fixture
def lab(lab4: TestLab, monkeypatch: pytest.MonkeyPatch) -> TestLab:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(lab4.state))
    return lab4


def over_ssh(lab: TestLab, script: str) -> str:
    """The output of an SSH session, including errors. Sessions inherit the environment of sshd."""
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


def test_bare_environment_if_termux_did_not_start_sshd(lab: TestLab) -> None:
    variables = 'echo "$PATH|$PREFIX|$TMPDIR|$LANG"'
    with quirk(lab, "environment=bare", "environment=termux"):
        assert over_ssh(lab, variables) == "/system/bin|||\n"
        assert "not found" in over_ssh(lab, "dpkg --version")
    assert over_ssh(lab, variables) == f"{PREFIX}/bin|{PREFIX}|{TMPDIR}|en_US.UTF-8\n"


def test_missing_tmpdir(lab: TestLab) -> None:
    check = 'echo "$TMPDIR"; touch $PREFIX/tmp/x && rm $PREFIX/tmp/x && echo written'
    with quirk(lab, "tmpdir=missing", "tmpdir=ok"):
        assert "Permission denied" in over_ssh(lab, check)
        assert over_ssh(lab, 'echo "$TMPDIR"') == "\n"
    assert over_ssh(lab, check) == f"{TMPDIR}\nwritten\n"


def test_a_cellular_interface_without_connectivity(lab: TestLab) -> None:
    addresses = "/system/bin/ip -4 -br address"
    with quirk(lab, "cellular=on", "cellular=off"):
        assert "10.200.4.2/30" in on_phone(lab, addresses)
        assert on_phone(lab, "timeout 0.5 bash -c '</dev/tcp/10.200.4.1/22'; echo $?") == "124\n"
    assert "10.200" not in on_phone(lab, addresses)


def test_blocked_outbound_connections(lab: TestLab) -> None:
    call = "timeout 5 bash -c '</dev/tcp/10.77.1.1/8022' && echo out"
    with quirk(lab, "outbound=blocked", "outbound=ok"):
        assert "unreachable" in over_ssh(lab, call)  # although ssh could connect
        set_power(lab.directory, PHONE, "off")
        set_power(lab.directory, PHONE, "on")
        assert "unreachable" in on_phone(lab, call)
    assert on_phone(lab, call) == "out\n"


def _cores(lab: TestLab) -> dict[str, set[int]]:
    """Capacities of the cores that a process may use, and of all cores."""
    every = [int(word) for word in on_phone(lab, "cat /sys/devices/system/cpu/cpu*/cpu_capacity").split()]
    allowed = json.loads(python(lab, "import os; print(list(os.sched_getaffinity(0)))"))
    return {"all": set(every), "allowed": {every[core] for core in allowed}}


def _frequencies(lab: TestLab) -> tuple[int, int]:
    """Current and maximum frequency."""
    now, most = on_phone(
        lab, "cd /sys/devices/system/cpu/cpufreq/policy0; cat scaling_cur_freq cpuinfo_max_freq"
    ).split()
    return int(now), int(most)


SPIN = "import time; t = time.monotonic()\nwhile time.monotonic() < t + 1: pass\nprint(time.process_time())"


def test_a_background_app_runs_on_little_cores(lab: TestLab) -> None:
    with quirk(lab, "cpuset=background", "cpuset=foreground"):
        cores = _cores(lab)
        assert max(cores["allowed"]) < max(cores["all"])
        assert float(python(lab, SPIN)) < 0.8
    cores = _cores(lab)
    assert cores["allowed"] == {max(cores["all"])}


def test_a_throttled_phone(lab: TestLab) -> None:
    with quirk(lab, "throttle=0.3", "throttle=1"):
        now, most = _frequencies(lab)
        assert now == pytest.approx(0.3 * most, abs=1)
        assert float(python(lab, SPIN)) < 0.7
        apply_settings(lab.directory, PHONE, ["cpuset=background", "cpuset=foreground"])
        assert _frequencies(lab)[0] == now
    now, most = _frequencies(lab)
    assert now == most


def test_sleeps_take_longer_while_dozing(lab: TestLab) -> None:
    def seconds(duration: float) -> float:
        started, ended = on_phone(lab, f"date +%s.%N; sleep {duration}; date +%s.%N").split()
        return float(ended) - float(started)

    with quirk(lab, "doze=on", "doze=off"):
        assert seconds(1) > 1.5
    eventually(lambda: seconds(0.1) < 1.5)


def test_the_phantom_process_killer(lab: TestLab) -> None:
    many_processes = "for i in $(seq 36); do setsid sleep 4343 & done >/dev/null 2>&1"
    count = "pgrep -c -x sleep"
    with quirk(lab, "phantom=on", "phantom=off"):
        on_phone(lab, many_processes)
        eventually(lambda: int(on_phone(lab, count)) <= 32)
        eventually(lambda: lab.phone(PHONE)["sshd"] is False)  # the oldest process
        assert re.search(
            r"ActivityManager: Killing PhantomProcessRecord \{\w+ \d+:sshd/u0a\d+\}: Trimming phantom processes",
            on_phone(lab, "/system/bin/logcat -d"),
        )
    on_phone(lab, "pkill -x sleep")
    apply_settings(lab.directory, PHONE, ["sshd=up"])
    on_phone(lab, many_processes)
    eventually(lambda: int(on_phone(lab, count)) == 36)  # each is a shell before it becomes sleep
    on_phone(lab, "pkill -x sleep")
    eventually(lambda: lab.phone(PHONE)["sshd"] is True)


def test_system_v_ipc_kills_with_sigsys(lab: TestLab) -> None:
    ask = f"{PYTHON} -c 'import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))'; echo $?"
    with quirk(lab, "sysvipc=sigsys", "sysvipc=enosys"):
        assert over_ssh(lab, ask).endswith("159\n")
    assert over_ssh(lab, ask) == "-1\n0\n"


def test_denied_hard_links(lab: TestLab) -> None:
    link = "cd $HOME; touch one; ln one two; ln -s one three; cat three && echo symbolic; rm -f one two three"
    with quirk(lab, "hardlinks=denied", "hardlinks=ok"):
        output = over_ssh(lab, link)
        assert "Permission denied" in output
        assert output.endswith("symbolic\n")
    assert over_ssh(lab, link) == "symbolic\n"


def test_a_wrong_clock(lab: TestLab) -> None:
    read = f"date +%s; {PYTHON} -c 'import time; print(int(time.time()))'; echo $EPOCHSECONDS"
    with quirk(lab, "clock=+90000", "clock=0"):
        off = [int(line) - time.time() for line in on_phone(lab, read).splitlines()]
        assert len(off) == 3
        assert all(80000 < seconds < 100000 for seconds in off)
    assert all(abs(int(line) - time.time()) < 10000 for line in on_phone(lab, read).splitlines())


def _connect_without_login(lab: TestLab) -> bytes:
    with LabNetwork(lab.directory).connect(str(load(lab.inventory).phone(PHONE).address), 8022, 10) as channel:
        return channel.recv(26)


def _restart_sshd(lab: TestLab) -> None:
    apply_settings(lab.directory, PHONE, ["sshd=down"])
    eventually(lambda: lab.phone(PHONE)["sshd"] is False)
    apply_settings(lab.directory, PHONE, ["sshd=up"])
    eventually(lambda: lab.phone(PHONE)["sshd"] is True)


def test_sshd_penalizes_connections_without_login(lab: TestLab) -> None:
    exempt = "$PREFIX/etc/ssh/sshd_config.d/peers.conf"
    with quirk(lab, "penalties=on", "penalties=off"):
        assert over_ssh(lab, "echo in") == "in\n"
        eventually(lambda: _connect_without_login(lab) == b"Not allowed at this time\r\n", timeout_s=60)
        on_phone(lab, f"echo 'PerSourcePenaltyExemptList 10.77.0.0/16' > {exempt}")
        _restart_sshd(lab)
        assert all(_connect_without_login(lab).startswith(b"SSH-") for _ in range(25))
        on_phone(lab, f"rm {exempt}")
    _restart_sshd(lab)
    assert all(_connect_without_login(lab).startswith(b"SSH-") for _ in range(25))


def test_scripts_fail_without_the_preloaded_library(lab: TestLab) -> None:
    script = "printf '#!/usr/bin/env bash\\necho $0 ran\\n' >there; chmod +x there; bash -c ./there; rm there"
    with quirk(lab, "preload=missing", "preload=ok"):
        assert over_ssh(lab, 'echo "[$LD_PRELOAD]"') == "[]\n"
        assert "ran" not in over_ssh(lab, script)
        assert "ran" not in on_phone(lab, script)
    assert over_ssh(lab, script) == on_phone(lab, script) == "./there ran\n"


def test_programs_with_a_missing_library(lab: TestLab) -> None:
    with quirk(lab, "linker=broken", "linker=ok"):
        for program in (f"{PYTHON} -c 1", "/apex/host/bin/orterun --version"):
            output = over_ssh(lab, f"{program}; echo $?")
            assert output.startswith("CANNOT LINK EXECUTABLE ")
            assert output.endswith("1\n")
    assert over_ssh(lab, f"{PYTHON} -c 'print(7)'") == "7\n"


def test_an_upgrade_waiting_at_a_prompt(lab: TestLab) -> None:
    terminal = "readlink /proc/$(pgrep -x dpkg)/fd/0"
    with quirk(lab, "apt=prompt", "apt=ok"):
        assert on_phone(lab, terminal).startswith("/dev/pts/")
        assert "held by process" in on_phone(lab, "apt-get -y install zlib")
    assert on_phone(lab, "pgrep -x dpkg; dpkg --audit") == ""


def test_an_outdated_package(lab: TestLab) -> None:
    with pytest.raises(ClusterctlError, match="no openmpi"):
        apply_settings(lab.directory, PHONE, ["packages=old"])
    database = "$PREFIX/var/lib/dpkg/status"
    on_phone(lab, f"cp {database} ~/before; printf '\\nPackage: openmpi\\nVersion: 4.1.5-1\\n' >> {database}")
    difference = f"diff ~/before {database} | grep '^> V'"
    try:
        with quirk(lab, "packages=old", "packages=ok"):
            assert on_phone(lab, difference) == "> Version: 4.1.4-2\n"
        assert on_phone(lab, difference) == "> Version: 4.1.5-1\n"
    finally:
        on_phone(lab, f"mv ~/before {database}")


def test_an_ethernet_adapter_that_android_does_not_configure(lab: TestLab) -> None:
    with quirk(lab, "interface=usb0", "interface=eth0"):
        shown = on_phone(lab, "/system/bin/ip -br address")
        assert "usb0" in shown
        assert "10.77." not in shown
        assert "eth0" not in shown
    assert over_ssh(lab, "echo in") == "in\n"


def test_a_changed_address(lab: TestLab) -> None:
    expected = str(load(lab.inventory).phone(PHONE).address)
    with quirk(lab, "address=changed", "address=ok"):
        with pytest.raises(OSError, match=r".+"):
            LabNetwork(lab.directory).connect(expected, 8022, 1)
        other = LabNetwork(lab.directory).connect(expected.replace("10.77.2.", "10.77.102."), 8022, 10)
        with other:
            assert other.recv(4) == b"SSH-"
    assert over_ssh(lab, "echo in") == "in\n"


def test_a_host_key_copied_from_another_phone(lab: TestLab) -> None:
    keys = ("bash", "-c", "cat $PREFIX/etc/ssh/ssh_host_*_key.pub")
    before = lab.on("p1-01", *keys).stdout
    apply_settings(lab.directory, PHONE, ["hostkey=shared:p1-01"])
    assert lab.on(PHONE, *keys).stdout == before
    apply_settings(lab.directory, PHONE, ["hostkey=new"])
    assert lab.on(PHONE, *keys).stdout != before
    assert lab.on("p1-01", *keys).stdout == before
    with pytest.raises(UsageError, match="p9-99"):
        apply_settings(lab.directory, PHONE, ["hostkey=shared:p9-99"])


def test_broken_boot_starts_nothing(lab: TestLab) -> None:
    with quirk(lab, "boot=broken", "boot=ok"):
        assert lab.phone(PHONE)["sshd"] is True  # until the next power cycle
        for state in ("off", "on"):
            set_power(lab.directory, PHONE, state)
        assert on_phone(lab, "pgrep -c -x sshd") == "0\n"
    for state in ("off", "on"):
        set_power(lab.directory, PHONE, state)
    assert lab.phone(PHONE)["sshd"] is True


def test_opencl_without_platform_or_library(lab: TestLab) -> None:
    library = "/vendor/lib64/libOpenCL.so"
    load_it = f"import ctypes; library = ctypes.CDLL('{library}'); n = ctypes.c_uint(9)"
    ask = f"{load_it}; library.clGetPlatformIDs(0, None, ctypes.byref(n)); print(n.value)"
    with quirk(lab, "opencl=no-platform", "opencl=ok"):
        assert python(lab, ask) == "0\n"
    with quirk(lab, "opencl=no-library", "opencl=ok"):
        assert "No such file" in on_phone(lab, f"ls {library}")
    assert python(lab, ask) == "1\n"


def test_readable_files_in_proc(lab: TestLab) -> None:
    files = "stat loadavg net/dev self/net/tcp self/status"
    read = f"for file in {files}; do head -c 1 /proc/$file >/dev/null 2>&1 && echo $file; done"
    default = ["net/dev", "self/net/tcp", "self/status"]
    assert on_phone(lab, read).split() == default
    with quirk(lab, "proc=open", "proc=masked"):
        assert on_phone(lab, read).split() == files.split()
    with quirk(lab, "proc=strict", "proc=masked"):
        assert on_phone(lab, read).split() == ["self/status"]
        attempt = "try: open('/proc/net/dev')\nexcept PermissionError: print('denied')"
        assert python(lab, attempt) == "denied\n"
    assert on_phone(lab, read).split() == default


@pytest.mark.parametrize(
    "wrong",
    ["environment=nice", "throttle=0", "throttle=2", "outbound=", "enviroment=bare", "clock=noon"],
)
def test_an_invalid_value_is_rejected_and_nothing_is_changed(lab: TestLab, wrong: str) -> None:
    with pytest.raises(UsageError):
        apply_settings(lab.directory, PHONE, ["cellular=on", wrong])
    assert "rmnet" not in on_phone(lab, "/system/bin/ip -br link")


def test_quirks_that_need_namespaces_fail_on_loopback(loopback_lab: TestLab) -> None:
    for setting in ("cellular=on", "environment=bare"):
        with pytest.raises(ClusterctlError, match="namespaces"):
            apply_settings(loopback_lab.directory, "p1-02", [setting])
    assert loopback_lab.mode is Mode.LOOPBACK
