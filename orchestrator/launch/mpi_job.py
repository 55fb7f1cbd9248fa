"""A short MPI job on all phones that is not a run, such as a benchmark: mpirun on the head phone, one JSON result."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import ClusterctlError
from orchestrator.fleet.agent import bad_answer
from orchestrator.inventory import hostfile
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.mpirun import agent_argv, bind_to, environment, mpirun_argv
from orchestrator.launch.run_spec import common_ssh_port
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.decode import DecodeError, decode, parse_json
from phone_agent.contract.errors import read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

T = TypeVar("T")
_PID_FILE = "pid"
_WRITE_PID_AND_EXEC = 'echo $$ >"$1" && shift && exec "$@"'
_KILL_AND_REMOVE = 'kill "$(cat "$1")"; rm -rf -- "$2"'


def run_mpi_job(  # noqa: PLR0917 - where, what, and for how long
    cluster: Cluster,
    ranks: Sequence[Phone],
    head: PhoneConnection,
    verb: Sequence[str],
    report: type[T],
    timeout: float,
) -> T:
    """Runs an agent command on every phone; returns the report of rank 0. An interruption ends the job as well."""
    directory, command = layout.run_dir(f"{verb[0]}-{secrets.token_hex(4)}"), agent_argv(*verb)
    hosts, pid = directory / layout.HOSTFILE, str(directory / _PID_FILE)
    argv = mpirun_argv(len(ranks), str(hosts), cluster.subnet, common_ssh_port(ranks), command)
    # The phone enforces the timeout as well: without this computer, the ranks would run on.
    bounded = ("timeout", "-k", "10", f"{timeout:.0f}", *bind_to(str(ranks[0].address)), *argv)
    head.put(hostfile(ranks).encode(), hosts)
    try:
        script = ("bash", "-c", _WRITE_PID_AND_EXEC, "bash", pid, *bounded)
        result = head.run(script, env=environment(), timeout=timeout + 15)
    except BaseException:
        head.run(["bash", "-c", _KILL_AND_REMOVE, "bash", pid, str(directory)])
        raise
    head.run(["rm", "-rf", "--", str(directory)])
    try:
        return decode(report, _find_report(verb[0], result.stdout, result.stderr))
    except DecodeError as error:
        raise bad_answer(head.phone, verb[0], error) from None


def _find_report(name: str, stdout: str, stderr: str) -> object:
    """The last JSON line with a time; all other output is ignored."""
    for line in reversed(stdout.splitlines()):
        with suppress(DecodeError):
            report = parse_json(line)
            if isinstance(report, dict) and "seconds" in report:
                return report
    reported = read_error_line(stderr)
    output = [reported[1]] if reported else [line for line in (stderr or stdout).splitlines() if line.strip("- ")]
    raise ClusterctlError(
        "\n".join([f"{name} did not finish:", *(f"  {one_line(line, 160)}" for line in output[-8:])]),
        remedy="clusterctl status",
    )
