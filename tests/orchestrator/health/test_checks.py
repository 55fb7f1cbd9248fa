"""Every check on phones that have its problem, and on phones that only resemble it."""

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
from tests.orchestrator.health.samples import (
    CLUSTER,
    HEALTHY,
    SESSION,
    battery,
    finding,
    unreachable,
    with_facts,
    with_session,
)

STOPS, SLOWS, NOTE = Severity.STOPS, Severity.SLOWS, Severity.NOTE
KEY = HostKey("ssh-ed25519", "AAAA")
WAITING = PackageManager(77, "dpkg", 5, "/dev/pts/0", idle=True)


def with_cluster(seen: Observation, **changes: Any) -> Observation:
    return replace(seen, cluster=replace(CLUSTER, **changes))


def with_previous(seen: Observation, **changes: Any) -> Observation:
    return replace(seen, previous=PreviousFacts(**{"when": CLUSTER.now - 600, **changes}))


PROBLEMS: list[tuple[str, Observation, Severity, str]] = [
    ("penalties", unreachable(ErrorCode.SSH_PENALTY, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", unreachable(ErrorCode.CONNECTION_CLOSED, Phase.BANNER), STOPS, "this is how it failed"),
    ("penalties", with_facts(penalty_exempt=""), SLOWS, "OpenSSH 10.5"),
    ("penalties", with_facts(penalty_exempt=None), SLOWS, "empty"),
    ("penalties", with_facts(penalty_exempt="10.9.0.0/24"), SLOWS, "10.9.0.0/24"),
    ("sshd", unreachable(ErrorCode.CONNECTION_REFUSED), STOPS, "sshd is not running"),
    (
        "boot",
        with_cluster(unreachable(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 5}),
        STOPS,
        "5 of 8 phones on sw1",
    ),
    (
        "boot",
        with_previous(unreachable(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="boot"),
        STOPS,
        "the phone restarted",
    ),
    ("boot", with_facts(boot_script="missing"), SLOWS, "no boot script"),
    ("boot", with_facts(sshd_supervisor="none"), SLOWS, "120 min ago"),
    ("environment", with_session(path="/system/bin"), STOPS, "PATH is /system/bin"),
    ("environment", with_session(prefix=""), STOPS, "PREFIX is unset"),
    ("environment", with_session(shell_error="bash: not found"), STOPS, "bash: not found"),
    (
        "interpreters",
        with_facts(session=replace(SESSION, preload=""), probes={"shebang": ProbeResult(126, "bad interpreter")}),
        SLOWS,
        "bad interpreter",
    ),
    ("linker", with_facts(probes={"python": ProbeResult(1, 'CANNOT LINK EXECUTABLE "python3"')}), STOPS, "CANNOT LINK"),
    (
        "linker",
        with_facts(probes={"mpirun": ProbeResult(127, "error while loading shared libraries: x")}),
        STOPS,
        "mpirun: error",
    ),
    (
        "package-manager",
        with_facts(package_managers=(WAITING,)),
        STOPS,
        "dpkg (process 77) has been waiting at /dev/pts/0",
    ),
    (
        "package-manager",
        with_facts(package_managers=(replace(WAITING, stdin="pipe:[1]", age_s=90),)),
        STOPS,
        "for 90 s",
    ),
    ("package-manager", with_facts(unfinished_packages=("openssl",)), STOPS, "did not finish installing openssl"),
    ("versions", with_cluster(HEALTHY, versions={"openmpi": "4.1.6-1"}), STOPS, "openmpi 4.1.5-1 (others 4.1.6-1)"),
    ("versions", with_cluster(HEALTHY, versions={"bash": "5.4"}), NOTE, "bash 5.3 (others 5.4)"),
    ("shared-memory", with_facts(probes={"mpi": ProbeResult(159, "")}), STOPS, "Bad system call"),
    ("shared-memory", with_facts(probes={"mpi": ProbeResult(1, "Signal: Bad system call (31)")}), STOPS, "exit code 1"),
    ("temporary-files", with_session(tmpdir="", tmp_writable=False), STOPS, "TMPDIR is unset"),
    ("temporary-files", with_session(tmp_writable=False), STOPS, "not writable"),
    (
        "interfaces",
        with_session(addresses=(*SESSION.addresses, ("rmnet_data0", "10.200.1.2/30")), wired_only=False),
        STOPS,
        "rmnet_data0 10.200.1.2/30 in addition to eth0",
    ),
    ("interfaces", with_session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), NOTE, "wlan0"),
    (
        "outbound",
        with_facts(probes={"neighbor": ProbeResult(255, "ssh: connect to host: No route to host")}),
        STOPS,
        "No route",
    ),
    ("outbound", with_facts(probes={"neighbor": ProbeResult(255, "Network is unreachable")}), STOPS, "to p1-02"),
    ("outbound", with_facts(probes={"neighbor": ProbeResult(124, "")}), STOPS, "no answer within 9 s"),
    (
        "outbound",
        with_session(outbound="none"),
        STOPS,
        "but connections it opens itself have no route",
    ),
    ("outbound", with_session(outbound="rmnet0"), STOPS, "use rmnet0"),
    ("ethernet", unreachable(ErrorCode.NO_ANSWER), STOPS, "at 10.77.1.1"),
    ("ethernet", unreachable(ErrorCode.NO_ROUTE), STOPS, "at 10.77.1.1"),
    ("ethernet", with_session(addresses=(("wlan0", "10.77.1.1/16"),), interfaces=("wlan0",)), STOPS, "eth0 is missing"),
    ("address", unreachable(ErrorCode.NO_ANSWER, found_at="10.77.1.99"), STOPS, "answers at 10.77.1.99"),
    (
        "address",
        unreachable(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",)),
        STOPS,
        "p1-07 answers at",
    ),
    ("host-key", unreachable(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY), STOPS, "this is how"),
    (
        "host-key",
        unreachable(
            ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",), same_key_reachable=True
        ),
        STOPS,
        "p1-07 has the same host key",
    ),
    ("host-key", unreachable(ErrorCode.HOST_KEY_DUPLICATE, Phase.HOSTKEY), STOPS, "this is how"),
    (
        "phantom-killer",
        with_facts(phantom_kill="Killing PhantomProcessRecord: Trimming phantom processes"),
        STOPS,
        "Trimming",
    ),
    ("phantom-killer", with_cluster(HEALTHY, killed={"p1-01": "run-7"}), STOPS, "signal 9"),
    ("phantom-killer", with_facts(processes=40), SLOWS, "40 Termux processes"),
    ("little-cores", with_session(cpus_allowed=(0, 1, 2)), SLOWS, "only cores 0-2; the big cores are 4-7"),
    ("little-cores", with_session(cpuset="/background"), SLOWS, "cpuset /background"),
    ("throttled", with_facts(frequency_mhz=(900, 2841)), SLOWS, "900 of 2841 MHz"),
    ("sleepy", with_facts(slept_s=3.2), SLOWS, "took 3.2 s"),
    ("sleepy", with_facts(complete=False), SLOWS, "did not finish in 25 s"),
    ("sleepy", with_facts(wake_lock="free"), NOTE, "no wake lock"),
    ("sleepy", unreachable(ErrorCode.NO_BANNER, Phase.BANNER), STOPS, "this is how"),
    ("battery-silent", with_facts(probes={"battery": ProbeResult(124, "")}), NOTE, "did not answer in 8 s"),
    ("no-temperature", with_facts(thermal="denied"), NOTE, "using the battery temperature"),
    ("power", with_facts(probes={"battery": battery(status="DISCHARGING")}), SLOWS, "PLUGGED_AC but DISCHARGING"),
    ("power", with_facts(probes={"battery": battery(status="DISCHARGING", percentage=12)}), STOPS, "12%"),
    ("power", with_facts(probes={"battery": battery(plugged="UNPLUGGED", percentage=12)}), STOPS, "not charging"),
    ("power", with_previous(HEALTHY, percentage=99.0, plugged=True), SLOWS, "3 % less than 10 min ago"),
    (
        "agent",
        with_facts(probes={"agent": ProbeResult(1, "PermissionError: /proc/stat")}),
        STOPS,
        "sys.platform is android",
    ),
    ("opencl", with_facts(opencl_library=False), NOTE, "libOpenCL.so"),
    ("opencl", with_facts(probes={"opencl": ProbeResult(1, "0 platforms")}), NOTE, "no platform"),
    ("clock", with_facts(clock_ahead_s=90.0), STOPS, "90 s ahead"),
    ("clock", with_facts(clock_ahead_s=-3.0), NOTE, "3 s behind"),
    ("disk", with_facts(disk_mb=12), STOPS, "12 MB of storage"),
    ("memory", with_facts(memory_mb=100), STOPS, "100 MB of memory"),
    ("hard-links", with_facts(probes={"link": ProbeResult(1, "Permission denied")}), NOTE, "Permission denied"),
    ("login", unreachable(None, Phase.AUTH), STOPS, "this is how"),
    ("login", unreachable(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY), STOPS, "this is how"),
    ("login", unreachable(None, Phase.EXEC), STOPS, "this is how"),
    (
        "phone-keys",
        with_facts(probes={"neighbor": ProbeResult(255, "termux@x: Permission denied (publickey)")}),
        STOPS,
        "to p1-02",
    ),
    ("mpi", with_facts(probes={"mpi": ProbeResult(1, "opal_init failed")}), STOPS, "opal_init failed"),
    ("set-up", with_facts(agent_installed=False), STOPS, "the agent is not installed"),
]

HEALTHY_CASES: list[tuple[str, Observation]] = [
    ("penalties", with_facts(ssh_version=(9, 2), penalty_exempt=None)),
    ("penalties", with_cluster(with_facts(penalty_exempt=None), subnet=None)),
    ("sshd", unreachable(ErrorCode.NO_ANSWER)),
    ("sshd", with_previous(unreachable(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="boot")),
    ("boot", with_cluster(unreachable(ErrorCode.CONNECTION_REFUSED), refusing={"sw1": 2})),
    ("boot", with_previous(unreachable(ErrorCode.CONNECTION_REFUSED), sshd_supervisor="none")),
    ("boot", with_facts(sshd_supervisor="none", boot_script="since-boot")),
    ("boot", with_facts(sshd_supervisor="none", uptime_s=30)),
    ("interpreters", with_session(preload="", path="/system/bin")),
    ("interpreters", with_facts(session=replace(SESSION, preload=""))),
    ("package-manager", with_facts(package_managers=(replace(WAITING, idle=False),))),
    ("package-manager", with_facts(package_managers=(replace(WAITING, stdin="/dev/null", age_s=900),))),
    ("package-manager", with_facts(package_managers=(replace(WAITING, idle=False),), unfinished_packages=("openssl",))),
    (
        "interfaces",
        with_cluster(with_session(addresses=(*SESSION.addresses, ("wlan0", "192.168.1.7/24"))), subnet=None),
    ),
    ("outbound", with_facts(probes={"neighbor": ProbeResult(255, "Connection refused")})),
    ("outbound", with_facts(probes={"neighbor": ProbeResult(126, "this key may not do that; timed out")})),
    ("phone-keys", with_facts(probes={"neighbor": ProbeResult(126, "true: Permission denied")})),
    ("outbound", with_cluster(with_facts(probes={"neighbor": ProbeResult(124, "")}), slow=frozenset({"p1-02"}))),
    ("outbound", with_facts(probes={"neighbor": ProbeResult(255, "Permission denied (publickey)")})),
    ("outbound", with_session(outbound="eth0")),
    ("outbound", with_session(outbound="wlan0", addresses=(("wlan0", "192.168.1.7/24"),))),
    ("outbound", with_cluster(with_session(outbound="none"), subnet=None)),
    ("ethernet", unreachable(ErrorCode.NO_ANSWER, found_at="10.77.1.99")),
    ("address", unreachable(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY)),
    ("host-key", unreachable(ErrorCode.HOST_KEY_UNKNOWN, Phase.HOSTKEY)),
    ("host-key", unreachable(ErrorCode.HOST_KEY_CHANGED, Phase.HOSTKEY, presented_key=KEY, same_key=("p1-07",))),
    ("phantom-killer", with_facts(sdk=30, processes=40, phantom_kill="Trimming phantom processes")),
    ("little-cores", with_session(cores={0: 1024, 1: 1024}, cpus_allowed=(0,))),
    ("little-cores", with_session(cpus_allowed=(0, 1, 2, 4))),
    ("throttled", with_facts(frequency_mhz=None)),
    ("battery-silent", with_facts(probes={"battery": ProbeResult(127, "not found")})),
    ("power", with_facts(probes={"battery": battery(status="NOT_CHARGING")})),
    ("power", with_previous(HEALTHY, percentage=99.0, plugged=False)),
    ("power", with_previous(HEALTHY, percentage=99.0, plugged=True, when=CLUSTER.now - 5)),
    ("power", with_facts(probes={"battery": ProbeResult(0, '{"plugged": 3, "percentage": "many"}')})),
    ("agent", with_facts(probes={"agent": ProbeResult(127, "CANNOT LINK EXECUTABLE python3")})),
    ("clock", with_facts(clock_ahead_s=1.5)),
    (
        "mpi",
        with_facts(session=replace(SESSION, tmp_writable=False), probes={"mpi": ProbeResult(1, "session directory")}),
    ),
    ("opencl", with_facts(probes={"clinfo": ProbeResult(0, "")})),
]


@pytest.mark.parametrize(("name", "seen", "severity", "evidence"), PROBLEMS)
def test_a_problem_is_found_with_evidence_and_remedy(
    name: str, seen: Observation, severity: Severity, evidence: str
) -> None:
    found = finding(name, seen)
    assert found is not None
    assert found.severity is severity
    assert evidence in found.evidence
    assert found.remedy


@pytest.mark.parametrize(("name", "seen"), HEALTHY_CASES)
def test_similar_observations_are_not_a_problem(name: str, seen: Observation) -> None:
    assert finding(name, seen) is None


def test_a_healthy_phone_has_no_findings() -> None:
    assert [each.name for each in ALL_CHECKS if each.evaluate(HEALTHY)] == []


def test_every_table_row_has_a_check_and_every_check_a_test_case() -> None:
    assert [each.row for each in ALL_CHECKS if each.row] == list(range(1, 26))
    assert {each.name for each in ALL_CHECKS} == {name for name, *_ in PROBLEMS}
    assert len({each.name for each in ALL_CHECKS}) == len(ALL_CHECKS)


UNREACHED = {
    Phase.TCP: (ErrorCode.CONNECTION_REFUSED, ErrorCode.NO_ANSWER, ErrorCode.NO_ROUTE),
    Phase.BANNER: (ErrorCode.NO_BANNER, ErrorCode.CONNECTION_CLOSED, ErrorCode.SSH_PENALTY, ErrorCode.NOT_SSH),
    Phase.KEX: (ErrorCode.KEY_EXCHANGE_FAILED, ErrorCode.TIMED_OUT),
    Phase.HOSTKEY: (ErrorCode.HOST_KEY_CHANGED, ErrorCode.HOST_KEY_DUPLICATE, ErrorCode.HOST_KEY_UNKNOWN),
    Phase.AUTH: (ErrorCode.AUTH_FAILED, ErrorCode.TIMED_OUT, ErrorCode.CONNECTION_LOST),
}


@pytest.mark.parametrize(("phase", "code"), [(phase, code) for phase, codes in UNREACHED.items() for code in codes])
def test_an_unreachable_phone_has_exactly_one_finding(phase: Phase, code: ErrorCode) -> None:
    seen = unreachable(code, phase)
    assert sum(each.evaluate(seen) is not None for each in ALL_CHECKS) == 1


def test_preflight_checks_need_only_session_facts() -> None:
    seen = replace(HEALTHY, facts=None, session_facts=replace(SESSION, tmp_writable=False, cpus_allowed=(0,)))
    assert [each.name for each in PREFLIGHT_CHECKS if each.evaluate(seen)] == ["temporary-files", "little-cores"]


def test_findings_state_whether_adb_or_ssh_fixes_them() -> None:
    wrong_clock = finding("clock", with_facts(clock_ahead_s=90.0))
    assert wrong_clock is not None
    assert wrong_clock.kind is RemedyKind.ADB
    assert wrong_clock.adb[0] == "shell settings put global ntp_server 10.77.0.1"
    bare = finding("environment", with_session(path="/system/bin"))
    assert bare is not None
    assert (bare.kind, bare.fix) == (RemedyKind.SSH, Fix.RESTART_SSHD)


def test_evidence_is_sanitized_and_bounded() -> None:
    nasty = "\x1b]0;owned\x07" + "x" * 5000
    found = finding("agent", with_facts(probes={"agent": ProbeResult(1, nasty)}))
    assert found is not None
    assert "\x1b" not in found.evidence
    assert len(found.evidence) <= 300
