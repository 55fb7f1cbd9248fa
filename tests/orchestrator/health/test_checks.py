"""Every check on phones that have its trouble, and on phones that only look like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.fleet.host_keys import HostKey
from orchestrator.fleet.result import Phase
from orchestrator.health.checks import ALL_CHECKS, PREFLIGHT_CHECKS
from orchestrator.health.doctor_facts import PackageManager, ProbeResult
from orchestrator.health.finding import Fix, RemedyKind, Severity
from orchestrator.health.observation import Observation, PreviousFacts
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.health.samples import COMMON, HEALTHY, SESSION, battery, finding, session, told, unreached

STOPS, SLOWS, NOTE = Severity.STOPS, Severity.SLOWS, Severity.NOTE
KEY = HostKey("ssh-ed25519", "AAAA")
WAITING = PackageManager(77, "dpkg", 5, "/dev/pts/0", idle=True)


def common(seen: Observation, **changes: Any) -> Observation:
    return replace(seen, cluster=replace(COMMON, **changes))


def earlier(seen: Observation, **changes: Any) -> Observation:
    return replace(seen, previous=PreviousFacts(**{"when": COMMON.now - 600, **changes}))


TROUBLED: list[tuple[str, Observation, Severity, str]] = [
    ("penalties", unreached(ErrorCode.SSH_PENALTY, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", unreached(ErrorCode.CONNECTION_CLOSED, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", told(penalty_exempt=""), SLOWS, "OpenSSH 10.5"),
    ("penalties", told(penalty_exempt=None), SLOWS, "empty"),
    ("penalties", told(penalty_exempt="10.9.0.0/24"), SLOWS, "10.9.0.0/24"),
    ("sshd", unreached(ErrorCode.CONNECTION_REFUSED), STOPS, "sshd is not running"),
    ("boot", common(unreached(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 5}), STOPS, "5 of 8 phones on sw1"),
    ("boot", earlier(unreached(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="boot"), STOPS, "the phone restarted"),
    ("boot", told(boot_script="missing"), SLOWS, "no boot script"),
    ("boot", told(sshd_supervisor="none"), SLOWS, "120 min ago"),
    ("environment", session(path="/system/bin"), STOPS, "PATH is /system/bin"),
    ("environment", session(prefix=""), STOPS, "PREFIX is unset"),
    ("environment", session(shell_error="bash: not found"), STOPS, "bash: not found"),
    (
        "interpreters",
        told(session=replace(SESSION, preload=""), probes={"shebang": ProbeResult(126, "bad interpreter")}),
        SLOWS,
        "bad interpreter",
    ),
    ("linker", told(probes={"python": ProbeResult(1, 'CANNOT LINK EXECUTABLE "python3"')}), STOPS, "CANNOT LINK"),
    (
        "linker",
        told(probes={"mpirun": ProbeResult(127, "error while loading shared libraries: x")}),
        STOPS,
        "mpirun: error",
    ),
    ("package-manager", told(package_managers=(WAITING,)), STOPS, "dpkg (process 77) has been waiting at /dev/pts/0"),
    ("package-manager", told(package_managers=(replace(WAITING, stdin="pipe:[1]", age_s=90),)), STOPS, "for 90 s"),
    ("package-manager", told(unfinished_packages=("openssl",)), STOPS, "did not finish installing openssl"),
    ("versions", common(HEALTHY, versions={"openmpi": "4.1.6-1"}), STOPS, "openmpi 4.1.5-1 (others 4.1.6-1)"),
    ("versions", common(HEALTHY, versions={"bash": "5.4"}), NOTE, "bash 5.3 (others 5.4)"),
    ("shared-memory", told(probes={"mpi": ProbeResult(159, "")}), STOPS, "Bad system call"),
    ("shared-memory", told(probes={"mpi": ProbeResult(1, "Signal: Bad system call (31)")}), STOPS, "exit code 1"),
    ("temporary-files", session(tmpdir="", tmp_writable=False), STOPS, "TMPDIR is unset"),
    ("temporary-files", session(tmp_writable=False), STOPS, "not writable"),
    (
        "interfaces",
        session(addresses=(*SESSION.addresses, ("rmnet_data0", "10.200.1.2/30")), wired_only=False),
        STOPS,
        "rmnet_data0 10.200.1.2/30 in addition to eth0",
    ),
    ("interfaces", session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), NOTE, "wlan0"),
    (
        "outbound",
        told(probes={"neighbor": ProbeResult(255, "ssh: connect to host: No route to host")}),
        STOPS,
        "No route",
    ),
    ("outbound", told(probes={"neighbor": ProbeResult(255, "Network is unreachable")}), STOPS, "to p1-02"),
    ("outbound", told(probes={"neighbor": ProbeResult(124, "")}), STOPS, "no answer within 9 s"),
    ("outbound", session(outbound="none"), STOPS, "comes in over eth0, but connections from the phone have no route"),
    ("outbound", session(outbound="rmnet0"), STOPS, "use rmnet0"),
    ("ethernet", unreached(ErrorCode.NO_ANSWER), STOPS, "at 10.77.1.1"),
    ("ethernet", unreached(ErrorCode.NO_ROUTE), STOPS, "at 10.77.1.1"),
    ("ethernet", session(addresses=(("wlan0", "10.77.1.1/16"),), interfaces=("wlan0",)), STOPS, "eth0 is missing"),
    ("address", unreached(ErrorCode.NO_ANSWER, found_at="10.77.1.99"), STOPS, "answers at 10.77.1.99"),
    (
        "address",
        unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",)),
        STOPS,
        "p1-07 answers at",
    ),
    ("host-key", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY), STOPS, "this is how"),
    (
        "host-key",
        unreached(
            ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",), same_key_reachable=True
        ),
        STOPS,
        "p1-07 has the same host key",
    ),
    ("host-key", unreached(ErrorCode.HOST_KEY_DUPLICATE, Phase.HOSTKEY), STOPS, "this is how"),
    (
        "phantom-killer",
        told(phantom_kill="Killing PhantomProcessRecord: Trimming phantom processes"),
        STOPS,
        "Trimming",
    ),
    ("phantom-killer", common(HEALTHY, killed={"p1-01": "run-7"}), STOPS, "signal 9"),
    ("phantom-killer", told(processes=40), SLOWS, "40 Termux processes"),
    ("little-cores", session(cpus_allowed=(0, 1, 2)), SLOWS, "only cores 0-2; the big cores are 4-7"),
    ("little-cores", session(cpuset="/background"), SLOWS, "cpuset /background"),
    ("throttled", told(frequency_mhz=(900, 2841)), SLOWS, "900 of 2841 MHz"),
    ("sleepy", told(slept_s=3.2), SLOWS, "took 3.2 s"),
    ("sleepy", told(complete=False), SLOWS, "did not finish in 25 s"),
    ("sleepy", told(wake_lock="free"), NOTE, "no wake lock"),
    ("sleepy", unreached(ErrorCode.NO_BANNER, Phase.BANNER), STOPS, "this is how"),
    ("battery-silent", told(probes={"battery": ProbeResult(124, "")}), NOTE, "did not answer in 8 s"),
    ("no-temperature", told(thermal="denied"), NOTE, "using the battery temperature"),
    ("power", told(probes={"battery": battery(status="DISCHARGING")}), SLOWS, "PLUGGED_AC but DISCHARGING"),
    ("power", told(probes={"battery": battery(status="DISCHARGING", percentage=12)}), STOPS, "12 %"),
    ("power", told(probes={"battery": battery(plugged="UNPLUGGED", percentage=12)}), STOPS, "not charging"),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=True), SLOWS, "3 % less than 10 min ago"),
    ("agent", told(probes={"agent": ProbeResult(1, "PermissionError: /proc/stat")}), STOPS, "sys.platform is android"),
    ("opencl", told(opencl_library=False), NOTE, "libOpenCL.so"),
    ("opencl", told(probes={"opencl": ProbeResult(1, "0 platforms")}), NOTE, "no platform"),
    ("clock", told(clock_ahead_s=90.0), STOPS, "90 s ahead"),
    ("clock", told(clock_ahead_s=-3.0), NOTE, "3 s behind"),
    ("disk", told(disk_mb=12), STOPS, "12 MB of storage"),
    ("memory", told(memory_mb=100), STOPS, "100 MB of memory"),
    ("hard-links", told(probes={"link": ProbeResult(1, "Permission denied")}), NOTE, "Permission denied"),
    ("login", unreached(None, Phase.AUTH), STOPS, "this is how"),
    ("login", unreached(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY), STOPS, "this is how"),
    ("login", unreached(None, Phase.EXEC), STOPS, "this is how"),
    (
        "phone-keys",
        told(probes={"neighbor": ProbeResult(255, "termux@x: Permission denied (publickey)")}),
        STOPS,
        "to p1-02",
    ),
    ("mpi", told(probes={"mpi": ProbeResult(1, "opal_init failed")}), STOPS, "opal_init failed"),
    ("set-up", told(agent_installed=False), STOPS, "the agent is not installed"),
]

FINE: list[tuple[str, Observation]] = [
    ("penalties", told(ssh_version=(9, 2), penalty_exempt=None)),
    ("penalties", common(told(penalty_exempt=None), subnet=None)),
    ("sshd", unreached(ErrorCode.NO_ANSWER)),
    ("sshd", earlier(unreached(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="boot")),
    ("boot", common(unreached(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 2})),
    ("boot", earlier(unreached(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="none")),
    ("boot", told(sshd_supervisor="none", boot_script="since-boot")),
    ("boot", told(sshd_supervisor="none", uptime_s=30)),
    ("interpreters", session(preload="", path="/system/bin")),
    ("interpreters", told(session=replace(SESSION, preload=""))),
    ("package-manager", told(package_managers=(replace(WAITING, idle=False),))),
    ("package-manager", told(package_managers=(replace(WAITING, stdin="/dev/null", age_s=900),))),
    ("package-manager", told(package_managers=(replace(WAITING, idle=False),), unfinished_packages=("openssl",))),
    ("interfaces", common(session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), subnet=None)),
    ("outbound", told(probes={"neighbor": ProbeResult(255, "Connection refused")})),
    ("outbound", told(probes={"neighbor": ProbeResult(126, "this key may not do that; timed out")})),
    ("phone-keys", told(probes={"neighbor": ProbeResult(126, "true: Permission denied")})),
    ("outbound", common(told(probes={"neighbor": ProbeResult(124, "")}), slow=frozenset({"p1-02"}))),
    ("outbound", told(probes={"neighbor": ProbeResult(255, "Permission denied (publickey)")})),
    ("outbound", session(outbound="eth0")),
    ("outbound", session(outbound="wlan0", addresses=(("wlan0", "192.168.1.7/24"),))),
    ("outbound", common(session(outbound="none"), subnet=None)),
    ("ethernet", unreached(ErrorCode.NO_ANSWER, found_at="10.77.1.99")),
    ("address", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY)),
    ("host-key", unreached(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY)),
    ("host-key", unreached(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",))),
    ("phantom-killer", told(sdk=30, processes=40, phantom_kill="Trimming phantom processes")),
    ("little-cores", session(cores={0: 1024, 1: 1024}, cpus_allowed=(0,))),
    ("little-cores", session(cpus_allowed=(0, 1, 2, 4))),
    ("throttled", told(frequency_mhz=None)),
    ("battery-silent", told(probes={"battery": ProbeResult(127, "not found")})),
    ("power", told(probes={"battery": battery(status="NOT_CHARGING")})),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=False)),
    ("power", earlier(HEALTHY, percentage=99.0, plugged=True, when=COMMON.now - 5)),
    ("power", told(probes={"battery": ProbeResult(0, '{"plugged": 3, "percentage": "many"}')})),
    ("agent", told(probes={"agent": ProbeResult(127, "CANNOT LINK EXECUTABLE python3")})),
    ("clock", told(clock_ahead_s=1.5)),
    ("mpi", told(session=replace(SESSION, tmp_writable=False), probes={"mpi": ProbeResult(1, "session directory")})),
    ("opencl", told(probes={"clinfo": ProbeResult(0, "")})),
]


@pytest.mark.parametrize(("name", "seen", "severity", "evidence"), TROUBLED)
def test_a_trouble_is_told_with_evidence_and_remedy(
    name: str, seen: Observation, severity: Severity, evidence: str
) -> None:
    found = finding(name, seen)
    assert found is not None
    assert found.severity is severity
    assert evidence in found.evidence
    assert found.remedy


@pytest.mark.parametrize(("name", "seen"), FINE)
def test_what_only_looks_like_a_trouble_is_none(name: str, seen: Observation) -> None:
    assert finding(name, seen) is None


def test_a_healthy_phone_has_none() -> None:
    assert [each.name for each in ALL_CHECKS if each.evaluate(HEALTHY)] == []


def test_every_row_of_the_table_has_a_check_and_every_check_a_case() -> None:
    assert [each.row for each in ALL_CHECKS if each.row] == list(range(1, 26))
    assert {each.name for each in ALL_CHECKS} == {name for name, *_ in TROUBLED}
    assert len({each.name for each in ALL_CHECKS}) == len(ALL_CHECKS)


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
    assert sum(each.evaluate(seen) is not None for each in ALL_CHECKS) == 1


def test_checks_before_runs_need_no_more_than_a_session() -> None:
    seen = replace(HEALTHY, facts=None, session_facts=replace(SESSION, tmp_writable=False, cpus_allowed=(0,)))
    assert [each.name for each in PREFLIGHT_CHECKS if each.evaluate(seen)] == ["temporary-files", "little-cores"]


def test_what_only_adb_can_do_says_so_and_what_ssh_can_do_as_well() -> None:
    wrong_clock = finding("clock", told(clock_ahead_s=90.0))
    assert wrong_clock is not None
    assert wrong_clock.kind is RemedyKind.ADB
    assert wrong_clock.adb[0] == "shell settings put global ntp_server 10.77.0.1"
    bare = finding("environment", session(path="/system/bin"))
    assert bare is not None
    assert (bare.kind, bare.fix) == (RemedyKind.SSH, Fix.RESTART_SSHD)


def test_evidence_is_harmless_and_short() -> None:
    nasty = "\x1b]0;owned\x07" + "x" * 5000
    found = finding("agent", told(probes={"agent": ProbeResult(1, nasty)}))
    assert found is not None
    assert "\x1b" not in found.evidence
    assert len(found.evidence) <= 300
