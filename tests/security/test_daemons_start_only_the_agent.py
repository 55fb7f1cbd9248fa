"""The head phone of a run may be hostile: its requests are validated, and other phones start nothing but the agent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.fleet import Fleet
from orchestrator.inventory import hostfile, load
from orchestrator.lab.network import LabNetwork
from orchestrator.launch.daemons import RECORD_SCRIPT, Job, check_requests, mca_arguments, start_daemons
from orchestrator.launch.mpirun import agent_argv, bind_to, environment, mpirun_argv, parameters
from orchestrator.paths import ClusterState
from phone_agent import rank_launcher
from phone_agent.contract import layout
from phone_agent.contract.decode import DecodeError, decode
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.replies import DaemonRequests, RunProbe
from phone_agent.core.build import AARCH64_ANDROID, host_target
from phone_agent.job.daemons import wait_for_daemons
from tests.labs import TestLab
from tests.orchestrator.launch.samples import phones
from tests.security.fuzz import fuzzed, tried

HEAD, OTHER = phones(2)
URI = f"3548905472.0;tcp://{HEAD.address}:47515"
REQUESTS = {"uri": URI, "vpids": {str(OTHER.address): 1}, "node_regex": "localhost,[2:10].77.1.2@0(2)"}
JOB = Job("run", 0, (HEAD, OTHER), ("train", "run"), {"clusterctl_run": "run"})


def daemon_arguments(answer: object) -> list[str]:
    """Of the daemon on the other phone. Raises DecodeError if the answer of the head phone is rejected."""
    requests = decode(DaemonRequests, answer)
    check_requests(requests, JOB)
    return mca_arguments(JOB, requests, str(OTHER.address))


def test_the_host_writes_the_command_line_of_a_daemon() -> None:
    words = daemon_arguments({**REQUESTS, "orte_fork_agent": "bash", "parameters": ["-mca", "filem", "raw"]})
    assert set(words[::3]) == {"-mca"}
    assert dict(zip(words[1::3], words[2::3], strict=True)) == {
        "ess": "env",
        "plm": "rsh",
        "pmix": "^s1,s2,cray,isolated",
        "filem": "^raw",
        "clusterctl_run": "run",
        "ess_base_jobid": "3548905472",
        "ess_base_vpid": "1",
        "ess_base_num_procs": "2",
        "orte_node_regex": "localhost,[2:10].77.1.2@0(2)",
        "orte_hnp_uri": URI,
    }


def test_mpirun_asks_for_a_daemon_on_its_own_phone_on_the_loopback_interface() -> None:
    """It does not recognize its address there."""
    alone = replace(JOB, phones=(replace(HEAD, address=IPv4Address("127.77.1.1")),))
    requests = DaemonRequests("7.0;tcp://127.0.0.1:1", {"127.77.1.1": 1})
    check_requests(requests, alone)
    assert mca_arguments(alone, requests, "127.77.1.1")[-7:-3] == ["1", "-mca", "ess_base_num_procs", "2"]


def test_two_daemons_with_the_same_number_are_rejected() -> None:
    three = phones(3)
    requests = DaemonRequests(URI, {str(phone.address): 1 for phone in three[1:]})
    with pytest.raises(DecodeError, match="the same number"):
        check_requests(requests, replace(JOB, phones=tuple(three)))


def test_a_text_longer_than_its_limit_is_rejected_rather_than_truncated() -> None:
    with pytest.raises(DecodeError, match="node_regex: malformed"):
        decode(DaemonRequests, {**REQUESTS, "node_regex": "a" * 10_001})


def test_a_phone_cannot_disable_the_detection_of_hung_ranks() -> None:
    assert decode(RunProbe, {"held_steps": [], "phase_expected_s": 1e7}).phase_expected_s == 600


@pytest.mark.parametrize(
    "hostile",
    [
        {"uri": URI.replace("47515", "٤٧٥١٥")},
        {"uri": URI.replace(str(HEAD.address), "10.77.1.3")},  # another phone would control the daemon
        {"uri": f"{URI};tcp://10.77.1.3:1"},
        {"uri": URI.replace("tcp:", "tcp6:")},
        {"uri": URI.replace(str(HEAD.address), "999.1.1.1")},
        {"uri": f"{URI} -mca orte_fork_agent bash"},
        {"vpids": {}},
        {"vpids": {str(OTHER.address): 0}},
        {"vpids": {str(OTHER.address): "1 -mca x y"}},
        {"vpids": {"10.77.9.9": 1}},
        {"vpids": {str(OTHER.address): 1, "10.77.9.9": 2}},
        {"node_regex": "localhost;id"},
        {"node_regex": "localhost -mca x y"},
    ],
)
def test_implausible_requests_are_rejected(hostile: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        daemon_arguments({**REQUESTS, **hostile})


JSON = st.recursive(st.none() | st.integers() | st.text() | st.just(URI), lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(st.sampled_from(list(REQUESTS)), JSON | st.dictionaries(st.text(), JSON, max_size=2)))
@fuzzed(200)
def test_nothing_else_passes(changes: dict[str, object]) -> None:
    tried("requests for daemons")
    try:
        words = daemon_arguments({**REQUESTS, **changes})
    except DecodeError:
        return
    assert words[-1].partition("tcp://")[2].startswith(f"{HEAD.address}:")
    assert all(set(word).isdisjoint(" $`'\"\\&|<>\n") for word in words)


def test_the_head_phone_reads_the_commands_of_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Open MPI 4.1 writes them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / layout.run_dir("job")
    (directory / layout.DAEMONS).mkdir(parents=True)
    command = (
        f'{OTHER.address}  orted --daemonize -mca ess "env" -mca ess_base_jobid "3548905472" -mca ess_base_vpid 1'
        ' -mca ess_base_num_procs "2" -mca orte_node_regex "localhost,[2:10].77.1.2@0(2)"'
        f' -mca orte_hnp_uri "{URI}" --mca btl_tcp_if_include "10.77.0.0/16" -mca plm "rsh"'
    )
    record = directory / layout.DAEMONS / layout.RECORD_DAEMON
    record.write_bytes(RECORD_SCRIPT)
    subprocess.run(["bash", record, *command.split()], check=True)
    assert asdict(wait_for_daemons("job", 0, 1, 5)) == REQUESTS


def test_a_head_phone_whose_mpirun_is_gone_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / layout.run_dir("job")
    (directory / layout.DAEMONS).mkdir(parents=True)
    ended = subprocess.Popen(["true"])
    ended.wait()
    (directory / layout.JOB_PID_FILE).write_text(str(ended.pid))
    with pytest.raises(AgentError) as raised:
        wait_for_daemons("job", 0, 1, 60)
    assert raised.value.code is ErrorCode.START_FAILED


# A daemon that starts its fork agent with the environment that mpirun sent.
DAEMON = "import os, sys; os.spawnve(os.P_WAIT, sys.argv[1], sys.argv[1:], {**os.environ, **eval(sys.argv.pop())})"


@pytest.fixture
def phone_home(tmp_path: Path) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / ".clusterctl/agent/current").mkdir(parents=True)
    (programs / "python3").write_text('#!/bin/bash\nprintf "%s\\0" "$PWD" "$@"; env -0\n')
    (programs / "python3").chmod(0o755)
    for name in ("bash", "readlink", "env"):
        found = next(Path(place, name) for place in ("/bin", "/usr/bin") if Path(place, name).exists())
        (programs / name).symlink_to(found)
    return tmp_path


def launch(home: Path, hostile: dict[str, str], *command: str) -> list[str]:
    """What the program printed that the launcher started: its directory, arguments and environment."""
    launcher = str(rank_launcher.cached(host_target()))
    trusted = {"HOME": str(home), "PATH": str(home / "bin"), "LANG": "C.UTF-8", "OMPI_MCA_btl": "self,tcp"}
    argv = [sys.executable, "-c", DAEMON, launcher, "train", "run", "--attempt", "2", "--", *command, repr(hostile)]
    done = subprocess.run(argv, env=trusted, cwd="/", capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.split("\0")[:-1]


def test_the_launcher_starts_the_agent_with_the_environment_of_the_daemon(phone_home: Path) -> None:
    hostile = {
        "PATH": "/sdcard",
        "HOME": "/sdcard",
        "LD_PRELOAD": "/sdcard/evil.so",
        "BASH_ENV": "$(touch owned)",
        "PYTHONPATH": "/sdcard",
        "PYTHONSTARTUP": "/sdcard/evil.py",
        "OPAL_PREFIX": "/sdcard",
        "PMIX_INSTALL_PREFIX": "/sdcard",
        "OMPI_MCA_mca_base_component_path": "/sdcard",
        "OMPI_MCA_orte_jobfam_session_dir": "/sdcard",
        "OMPI_MCA_btl": "evil",
        "PMIX_MCA_mca_base_component_path": "/sdcard",
        "OMPI_COMM_WORLD_RANK": "3",
        "PMIX_SERVER_URI2": "1.0;tcp4://127.0.0.1:1",
    }
    directory, *printed = launch(phone_home, hostile, "bash", "-c", "touch owned")
    assert (directory, printed[:6]) == (str(phone_home), ["-m", "phone_agent", "train", "run", "--attempt", "2"])
    variables = dict(line.split("=", 1) for line in printed[6:])
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):
        variables.pop(name, None)
    assert variables == {
        "HOME": str(phone_home),
        "PATH": str(phone_home / "bin"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(phone_home / ".clusterctl/agent/current"),
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_COMM_WORLD_RANK": "3",
        "PMIX_SERVER_URI2": "1.0;tcp4://127.0.0.1:1",
    }


def test_the_launcher_runs_the_same_script_as_the_head_phone() -> None:
    script = agent_argv()[2]
    assert script.encode() in rank_launcher.cached(host_target()).read_bytes()


def test_the_launcher_for_phones_needs_no_library() -> None:
    program = rank_launcher.cached(AARCH64_ANDROID).read_bytes()
    assert program[18] == 0xB7  # aarch64
    assert b"ld-" not in program
    assert b"linker64" not in program


@pytest.mark.parametrize("words", [(), ("train",), ("--",)])
def test_the_launcher_needs_a_verb(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [rank_launcher.cached(host_target()), *words], env={"PATH": os.defpath}, capture_output=True, check=False
    )
    assert done.returncode == 127
    assert b"usage" in done.stderr


RUN_IN_BACKGROUND = """{ "$@" >attack.log 2>&1; echo ended >>attack.log; } </dev/null >/dev/null 2>&1 &"""


@contextmanager
def lab_fleet(lab: TestLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(lab.state))
    with Fleet(load(lab.inventory), ClusterState("lab"), LabNetwork(lab.directory)) as fleet:
        yield fleet


@pytest.mark.lab
def test_a_hostile_head_phone_cannot_run_a_command_on_other_phones(
    provisioned_lab4: TestLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mpirun asks for `touch owned` in every way that Open MPI offers; the daemon starts what the host wants."""
    with lab_fleet(provisioned_lab4, monkeypatch) as fleet:
        cluster, directory = load(provisioned_lab4.inventory), layout.run_dir("attack")
        ranks = fleet.phones[:2]
        head, victim = map(fleet.connection, ranks)
        head.put(hostfile(ranks).encode(), directory / layout.HOSTFILE)
        head.put(RECORD_SCRIPT, directory / layout.DAEMONS / layout.RECORD_DAEMON)
        job = Job("attack", 0, ranks, ("runs",), parameters(cluster.subnet, "attack"))
        hostile = ("-x", "BASH_ENV=$(touch owned)", "-x", "LD_PRELOAD=/no/such.so", "--mca", "orte_fork_agent", "env")
        program = (*hostile, "bash", "-c", "touch owned; echo OWNED by rank $OMPI_COMM_WORLD_RANK")
        argv = (*bind_to(str(ranks[0].address)), *mpirun_argv(2, directory, job.parameters, program))
        head.run(["bash", "-c", RUN_IN_BACKGROUND, "bash", *argv], env=environment())
        start_daemons(fleet, job)
        while "ended" not in (log := head.run(["cat", "attack.log"]).stdout):
            time.sleep(0.2)
        assert "OWNED by rank 0" in log
        assert "OWNED by rank 1" not in log
        assert "[" in log  # the agent printed the list of its runs
        assert "owned" not in victim.run(["ls"]).stdout
        head.run(["rm", "-rf", "--", "owned", "attack.log", str(directory)])


@pytest.mark.lab
def test_a_phone_without_the_daemon_is_named_and_nothing_stays_running(provisioned_lab4: TestLab) -> None:
    daemon = "$PREFIX/bin/orted"
    provisioned_lab4.on("p1-02", "bash", "-c", f"mv {daemon} {daemon}.away")
    try:
        done = provisioned_lab4.clusterctl("launch", "--model", "lenet", "--steps", "2", check=False)
    finally:
        provisioned_lab4.on("p1-02", "bash", "-c", f"mv {daemon}.away {daemon}")
    assert done.returncode == 1
    assert "Open MPI's daemon did not start on 1 phone" in done.stderr
    assert "p1-02 (sw1:2)" in done.stderr
    for name in ("p1-01", "p1-02", "p2-01", "p2-02"):
        assert provisioned_lab4.on(name, "pgrep", "mpirun|orted", check=False).stdout == ""
