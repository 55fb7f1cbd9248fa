"""A short MPI job on all phones that is not a run, such as a benchmark: mpirun on the head phone, one JSON result."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import hostfile
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.mpirun import bind_to, environment, mpirun_argv
from orchestrator.launch.run_spec import common_ssh_port
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.errors import read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_PID_FILE = "pid"
_WRITE_PID_AND_EXEC = 'echo $$ >"$1" && shift && exec "$@"'
_KILL_AND_REMOVE = 'kill "$(cat "$1")"; rm -rf -- "$2"'


def run_mpi_job(  # noqa: PLR0917 - where, what, and for how long
    cluster: Cluster, ranks: Sequence[Phone], head: PhoneConnection, name: str, command: Sequence[str], timeout: float
) -> dict[str, Any]:
    """Runs `command` on every phone and returns the report of rank 0. An interruption ends the job as well."""
    directory = layout.run_dir(f"{name}-{secrets.token_hex(4)}")
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
    return _parse_report(name, result.stdout, result.stderr)


def _parse_report(name: str, stdout: str, stderr: str) -> dict[str, Any]:
    """The last JSON line with a time; all other output is ignored."""
    for line in reversed(stdout.splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and "seconds" in report:
            return report
    reported = read_error_line(stderr)
    output = [reported[1]] if reported else [line for line in (stderr or stdout).splitlines() if line.strip("- ")]
    raise ClusterctlError(
        "\n".join([f"{name} did not finish:", *(f"  {one_line(line, 160)}" for line in output[-8:])]),
        remedy="clusterctl status",
    )
