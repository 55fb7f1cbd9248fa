"""Every check on phones that have its trouble, and on phones that only look like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.result import Phase
from orchestrator.health.checks import ALL, BEFORE_RUNS
from orchestrator.health.doctor_facts import Manager, Ran
from orchestrator.health.finding import Fix, Kind, Severity
from orchestrator.health.observation import Earlier, Seen
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.health.samples import COMMON, HEALTHY, SESSION, battery, finding, session, told, unreached

STOPS, SLOWS, NOTE = Severity.STOPS, Severity.SLOWS, Severity.NOTE
KEY = HostKey("ssh-ed25519", "AAAA")
WAITING = Manager(77, "dpkg", 5, "/dev/pts/0", idle=True)


def common(seen: Seen, **changes: Any) -> Seen:
    return replace(seen, common=replace(COMMON, **changes))


def earlier(seen: Seen, **changes: Any) -> Seen:
    return replace(seen, earlier=Earlier(**{"when": COMMON.now - 600, **changes}))


TROUBLED: list[tuple[str, Seen, Severity, str]] = [
    ("penalties", unreached(ErrorCode.SSH_PENALTY, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", unreached(ErrorCode.CONNECTION_CLOSED, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", told(exempt=""), SLOWS, "OpenSSH 10.5"),
    ("penalties", told(exempt=None), SLOWS, "empty"),
    ("penalties", told(exempt="10.9.0.0/24"), SLOWS, "10.9.0.0/24"),
    ("sshd", unreached(ErrorCode.CONNECTION_REFUSED), STOPS, "sshd is gone"),
    ("boot", common(unreached(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 5}), STOPS, "5 of 8 phones on sw1"),
    ("boot", earlier(unreached(ErrorCode.CONNECTION_REFUSED), keeper="boot"), STOPS, "the phone restarted"),
    ("boot", told(boot_script="missing"), SLOWS, "no boot script"),
    ("boot", told(keeper="none"), SLOWS, "120 min ago"),
    ("environment", session(path="/system/bin"), STOPS, "PATH is /system/bin"),
    ("environment", session(prefix=""), STOPS, "PREFIX is unset"),
    ("environment", session(shell_error="bash: not found"), STOPS, "bash: not found"),
    (
        "interpreters",
        told(session=replace(SESSION, preload=""), ran={"shebang": Ran(126, "bad interpreter")}),
        SLOWS,
        "bad interpreter",
    ),
    ("linker", told(ran={"python": Ran(1, 'CANNOT LINK EXECUTABLE "python3"')}), STOPS, "CANNOT LINK"),
    ("linker", told(ran={"mpirun": Ran(127, "error while loading shared libraries: x")}), STOPS, "mpirun: error"),
    ("package-manager", told(managers=(WAITING,)), STOPS, "dpkg (process 77) waits at /dev/pts/0"),
    ("package-manager", told(managers=(replace(WAITING, stdin="pipe:[1]", age_s=90),)), STOPS, "since 90 s"),
    ("package-manager", told(unfinished=("openssl",)), STOPS, "did not finish openssl"),
    ("versions", common(HEALTHY, versions={"openmpi": "4.1.6-1"}), STOPS, "openmpi 4.1.5-1 (others 4.1.6-1)"),
    ("versions", common(HEALTHY, versions={"bash": "5.4"}), NOTE, "bash 5.3 (others 5.4)"),
    ("shared-memory", told(ran={"mpi": Ran(159, "")}), STOPS, "Bad system call"),
    ("shared-memory", told(ran={"mpi": Ran(1, "Signal: Bad system call (31)")}), STOPS, "exit code 1"),
    ("temporary-files", session(tmpdir="", tmp_writable=False), STOPS, "TMPDIR is unset"),
    ("temporary-files", session(tmp_writable=False), STOPS, "cannot be written"),
    (
        "interfaces",
        session(addresses=(*SESSION.addresses, ("rmnet_data0", "10.200.1.2/30")), wired_only=False),
        STOPS,
        "rmnet_data0 10.200.1.2/30 beside eth0",
    ),
    ("interfaces", session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), NOTE, "wlan0"),
    ("outbound", told(ran={"neighbour": Ran(255, "ssh: connect to host: No route to host")}), STOPS, "No route"),
    ("outbound", told(ran={"neighbour": Ran(255, "Network is unreachable")}), STOPS, "to p1-02"),
    ("outbound", told(ran={"neighbour": Ran(124, "")}), STOPS, "no answer within 9 s"),
    ("outbound", session(outbound="none"), STOPS, "comes in by eth0, and what it begins itself has no route"),
    ("outbound", session(outbound="rmnet0"), STOPS, "goes out by rmnet0"),
    ("ethernet", unreached(ErrorCode.NO_ANSWER), STOPS, "at 10.77.1.1"),
    ("ethernet", unreached(ErrorCode.NO_ROUTE), STOPS, "at 10.77.1.1"),
    ("ethernet", session(addresses=(("wlan0", "10.77.1.1/16"),), interfaces=("wlan0",)), STOPS, "eth0 is absent"),
    ("address", unreached(ErrorCode.NO_ANSWER, elsewhere="10.77.1.99"), STOPS, "answers at 10.77.1.99"),
    (
        "address",
        unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, shown=KEY, like=("p1-07",)),
        STOPS,
        "answers p1-07",
    ),
    ("host-key", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, shown=KEY), STOPS, "this is how"),
    (
        "host-key",
        unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, shown=KEY, like=("p1-07",), like_there=True),
        STOPS,
        "p1-07 shows the same key",
    ),
    ("host-key", unreached(ErrorCode.HOST_KEY_DUPLICATE, Phase.HOSTKEY), STOPS, "this is how"),
    ("phantom-killer", told(phantom="Killing PhantomProcessRecord: Trimming phantom processes"), STOPS, "Trimming"),
    ("phantom-killer", common(HEALTHY, killed={"p1-01": "run-7"}), STOPS, "signal 9"),
    ("phantom-killer", told(processes=40), SLOWS, "40 processes"),
    ("little-cores", session(cpus_allowed=(0, 1, 2)), SLOWS, "cores 0-2 only, big ones are 4-7"),
    ("little-cores", session(cpuset="/background"), SLOWS, "cpuset /background"),
    ("throttled", told(frequency_mhz=(900, 2841)), SLOWS, "900 of 2841 MHz"),
    ("sleepy", told(slept_s=3.2), SLOWS, "took 3.2 s"),
    ("sleepy", told(complete=False), SLOWS, "did not answer all"),
    ("sleepy", told(wake_lock="free"), NOTE, "no wake lock"),
    ("sleepy", unreached(ErrorCode.NO_BANNER, Phase.BANNER), STOPS, "this is how"),
    ("battery-silent", told(ran={"battery": Ran(124, "")}), NOTE, "did not answer in 8 s"),
    ("no-temperature", told(thermal="denied"), NOTE, "the battery's is used"),
    ("power", told(ran={"battery": battery(status="DISCHARGING")}), SLOWS, "PLUGGED_AC and yet DISCHARGING"),
    ("power", told(ran={"battery": battery(status="DISCHARGING", percentage=12)}), STOPS, "12 %"),
    ("power", told(ran={"battery": battery(plugged="UNPLUGGED", percentage=12)}), STOPS, "nothing charges it"),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=True), SLOWS, "3 % less than 10 min ago"),
    ("agent", told(ran={"agent": Ran(1, "PermissionError: /proc/stat")}), STOPS, "sys.platform is android"),
    ("opencl", told(opencl_library=False), NOTE, "libOpenCL.so"),
    ("opencl", told(ran={"opencl": Ran(1, "0 platforms")}), NOTE, "no platform"),
    ("clock", told(clock_ahead_s=90.0), STOPS, "90 s ahead"),
    ("clock", told(clock_ahead_s=-3.0), NOTE, "3 s behind"),
    ("disk", told(disk_mb=12), STOPS, "12 MB of storage"),
    ("memory", told(memory_mb=100), STOPS, "100 MB of memory"),
    ("hard-links", told(ran={"link": Ran(1, "Permission denied")}), NOTE, "Permission denied"),
    ("login", unreached(None, Phase.AUTH), STOPS, "this is how"),
    ("login", unreached(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY), STOPS, "this is how"),
    ("login", unreached(None, Phase.EXEC), STOPS, "this is how"),
    ("phone-keys", told(ran={"neighbour": Ran(255, "termux@x: Permission denied (publickey)")}), STOPS, "to p1-02"),
    ("mpi", told(ran={"mpi": Ran(1, "opal_init failed")}), STOPS, "opal_init failed"),
    ("set-up", told(agent_installed=False), STOPS, "no agent"),
]

FINE: list[tuple[str, Seen]] = [
    ("penalties", told(ssh_version=(9, 2), exempt=None)),
    ("penalties", common(told(exempt=None), subnet=None)),
    ("sshd", unreached(ErrorCode.NO_ANSWER)),
    ("sshd", earlier(unreached(ErrorCode.CONNECTION_REFUSED), keeper="boot")),
    ("boot", common(unreached(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 2})),
    ("boot", earlier(unreached(ErrorCode.CONNECTION_REFUSED), keeper="none")),
    ("boot", told(keeper="none", boot_script="since-boot")),
    ("boot", told(keeper="none", uptime_s=30)),
    ("interpreters", session(preload="", path="/system/bin")),
    ("interpreters", told(session=replace(SESSION, preload=""))),
    ("package-manager", told(managers=(replace(WAITING, idle=False),))),
    ("package-manager", told(managers=(replace(WAITING, stdin="/dev/null", age_s=900),))),
    ("package-manager", told(managers=(replace(WAITING, idle=False),), unfinished=("openssl",))),
    ("interfaces", common(session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), subnet=None)),
    ("outbound", told(ran={"neighbour": Ran(255, "Connection refused")})),
    ("outbound", told(ran={"neighbour": Ran(126, "this key may not do that; timed out")})),
    ("phone-keys", told(ran={"neighbour": Ran(126, "true: Permission denied")})),
    ("outbound", common(told(ran={"neighbour": Ran(124, "")}), slow=frozenset({"p1-02"}))),
    ("outbound", told(ran={"neighbour": Ran(255, "Permission denied (publickey)")})),
    ("outbound", session(outbound="eth0")),
    ("outbound", session(outbound="wlan0", addresses=(("wlan0", "192.168.1.7/24"),))),
    ("outbound", common(session(outbound="none"), subnet=None)),
    ("ethernet", unreached(ErrorCode.NO_ANSWER, elsewhere="10.77.1.99")),
    ("address", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, shown=KEY)),
    ("host-key", unreached(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY)),
    ("host-key", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, shown=KEY, like=("p1-07",))),
    ("phantom-killer", told(sdk=30, processes=40, phantom="Trimming phantom processes")),
    ("little-cores", session(cores={0: 1024, 1: 1024}, cpus_allowed=(0,))),
    ("little-cores", session(cpus_allowed=(0, 1, 2, 4))),
    ("throttled", told(frequency_mhz=None)),
    ("battery-silent", told(ran={"battery": Ran(127, "not found")})),
    ("power", told(ran={"battery": battery(status="NOT_CHARGING")})),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=False)),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=True, when=COMMON.now - 5)),
    ("power", told(ran={"battery": Ran(0, '{"plugged": 3, "percentage": "many"}')})),
    ("agent", told(ran={"agent": Ran(127, "CANNOT LINK EXECUTABLE python3")})),
    ("clock", told(clock_ahead_s=1.5)),
    ("mpi", told(session=replace(SESSION, tmp_writable=False), ran={"mpi": Ran(1, "session directory")})),
    ("opencl", told(ran={"clinfo": Ran(0, "")})),
]


@pytest.mark.parametrize(("name", "seen", "severity", "evidence"), TROUBLED)
def test_a_trouble_is_told_with_evidence_and_remedy(name: str, seen: Seen, severity: Severity, evidence: str) -> None:
    found = finding(name, seen)
    assert found is not None
    assert found.severity is severity
    assert evidence in found.evidence
    assert found.remedy


@pytest.mark.parametrize(("name", "seen"), FINE)
def test_what_only_looks_like_a_trouble_is_none(name: str, seen: Seen) -> None:
    assert finding(name, seen) is None


def test_a_healthy_phone_has_none() -> None:
    assert [each.name for each in ALL if each.judge(HEALTHY)] == []


def test_every_row_of_the_table_has_a_check_and_every_check_a_case() -> None:
    assert [each.row for each in ALL if each.row] == list(range(1, 26))
    assert {each.name for each in ALL} == {name for name, *_ in TROUBLED}
    assert len({each.name for each in ALL}) == len(ALL)


UNREACHED = {
    Phase.TCP: (ErrorCode.CONNECTION_REFUSED, ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE),
    Phase.BANNER: (ErrorCode.NO_BANNER, ErrorCode.CONNECTION_CLOSED, ErrorCode.SSH_PENALTY, ErrorCode.NOT_SSH),
    Phase.KEX: (ErrorCode.KEY_EXCHANGE_FAILED, ErrorCode.TIMED_OUT),
    Phase.HOSTKEY: (ErrorCode.HOST_KEY_CHANGED, ErrorCode.HOST_KEY_DUPLICATE, ErrorCode.HOST_KEY_UNKNOWN),
    Phase.AUTH: (ErrorCode.AUTH_FAILED, ErrorCode.TIMED_OUT, ErrorCode.CONNECTION_LOST),
}


@pytest.mark.parametrize(("phase", "code"), [(phase, code) for phase, codes in UNREACHED.items() for code in codes])
def test_a_phone_that_was_not_reached_has_one_finding_only(phase: Phase, code: ErrorCode) -> None:
    seen = unreached(code, phase)
    assert sum(each.judge(seen) is not None for each in ALL) == 1


def test_checks_before_runs_need_no_more_than_a_session() -> None:
    seen = replace(HEALTHY, facts=None, known_session=replace(SESSION, tmp_writable=False, cpus_allowed=(0,)))
    assert [each.name for each in BEFORE_RUNS if each.judge(seen)] == ["temporary-files", "little-cores"]


def test_what_only_adb_can_do_says_so_and_what_ssh_can_do_as_well() -> None:
    wrong_clock = finding("clock", told(clock_ahead_s=90.0))
    assert wrong_clock is not None
    assert wrong_clock.kind is Kind.ADB
    assert wrong_clock.adb[0] == "shell settings put global ntp_server 10.77.0.1"
    bare = finding("environment", session(path="/system/bin"))
    assert bare is not None
    assert (bare.kind, bare.fix) == (Kind.SSH, Fix.RESTART_SSHD)


def test_evidence_is_harmless_and_short() -> None:
    nasty = "\x1b]0;owned\x07" + "x" * 5000
    found = finding("agent", told(ran={"agent": Ran(1, nasty)}))
    assert found is not None
    assert "\x1b" not in found.evidence
    assert len(found.evidence) <= 300
