"""A short MPI job on all phones that is not a run, such as a benchmark: mpirun on the head phone, one JSON result."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet.agent import bad_answer
from orchestrator.inventory import hostfile
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.daemons import RECORD_SCRIPT, Job, start_daemons
from orchestrator.launch.mpirun import agent_argv, bind_to, environment, mpirun_argv, parameters
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.decode import DecodeError, decode, parse_json
from phone_agent.contract.errors import ErrorCode, read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from orchestrator.fleet.result import CommandResult

T = TypeVar("T")
_WRITE_PID_AND_EXEC = 'echo $$ >"$1" && shift && exec "$@"'
_KILL = 'kill "$(cat "$1")"'


def run_mpi_job(  # noqa: PLR0917 - where, what, and for how long
    cluster: Cluster, fleet: Fleet, ranks: Sequence[Phone], verb: Sequence[str], report: type[T], timeout: float
) -> T:
    """Runs an agent command on every phone; returns the report of rank 0. An interruption ends the job as well."""
    run_id = f"{verb[0]}-{secrets.token_hex(4)}"
    head, directory = fleet.connection(ranks[0]), layout.run_dir(run_id)
    job = Job(run_id, 0, tuple(ranks), tuple(verb), parameters(cluster.subnet, run_id))
    _stage(fleet, job, directory)
    pool = ThreadPoolExecutor(1)
    try:
        running = pool.submit(_run_mpirun, head, job, directory, timeout)
        _start_daemons(fleet, job)
        result = running.result()
    except BaseException:
        head.run(["bash", "-c", _KILL, "bash", str(directory / layout.JOB_PID_FILE)])
        raise
    finally:
        pool.shutdown()
        head.run(["rm", "-rf", "--", str(directory)])
    try:
        return decode(report, _find_report(verb[0], result.stdout, result.stderr))
    except DecodeError as error:
        raise bad_answer(head.phone, verb[0], error) from None


def _stage(fleet: Fleet, job: Job, directory: PurePosixPath) -> None:
    head = fleet.connection(job.phones[0])
    head.put(hostfile(job.phones).encode(), directory / layout.HOSTFILE)
    head.put(RECORD_SCRIPT, directory / layout.DAEMONS / layout.RECORD_DAEMON)


def _run_mpirun(head: PhoneConnection, job: Job, directory: PurePosixPath, timeout: float) -> CommandResult:
    argv = mpirun_argv(len(job.phones), directory, job.parameters, agent_argv(*job.verb))
    # The phone enforces the timeout as well: without this computer, the ranks would run on.
    bounded = ("timeout", "-k", "10", f"{timeout:.0f}", *bind_to(str(head.phone.address)), *argv)
    script = ("bash", "-c", _WRITE_PID_AND_EXEC, "bash", str(directory / layout.JOB_PID_FILE), *bounded)
    return head.run(script, env=environment(), timeout=timeout + 15)


def _start_daemons(fleet: Fleet, job: Job) -> None:
    try:
        start_daemons(fleet, job)
    except PhoneError as error:
        if error.code is not ErrorCode.START_FAILED:  # then the output of mpirun has the reason
            raise


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
