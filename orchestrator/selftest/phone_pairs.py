"""Checks between phones: ssh login from one to the next, and an allreduce over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.bench.allreduce import AllreduceRequest, bench_allreduce
from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.text import one_line
from phone_agent.contract.assumptions import CheckResult, failed, ok, ok_if

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

REQUEST: Final = AllreduceRequest(megabytes=4.0, repeats=3)
_SSH: Final = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
_TIMEOUT_S: Final = 40.0
_USAGE: Final = "Open RTE Daemon"  # as printed by orted --help


def check_login(connection: PhoneConnection, neighbor: Phone) -> CheckResult:
    """Completes the ssh handshake, as mpirun does: sshd penalizes clients that only open the port."""
    ssh = ("ssh", *_SSH, "-p", str(neighbor.ssh_port), "--", str(neighbor.address))
    done = connection.run((*ssh, "orted", "--help"), timeout=_TIMEOUT_S)
    route = f"{connection.phone.name} to {neighbor.name}"
    if _USAGE in done.stdout + done.stderr:  # the exit code is 1 even on success
        return ok(f"{route}: orted starts")
    output = one_line(" ".join((done.stderr or done.stdout).split())[-300:])
    return failed(f"{route}: exit code {done.rc}: {output}")


def check_allreduce(cluster: Cluster, phones: Sequence[Phone], head: PhoneConnection) -> CheckResult:
    try:
        result = bench_allreduce(cluster, phones, head, REQUEST)
    except ClusterctlError as error:
        return failed(one_line(error.message, 1000))
    line_rate = f"{result.line_rate_fraction:.0%} of line rate"
    evidence = {"seconds": result.all_seconds, "bytes": result.bytes, "cpu_seconds": result.cpu_seconds}
    detail = f"{REQUEST.megabytes:g} MB over {len(phones)} phones in {result.seconds:.3f} s, {line_rate}"
    return ok_if(result.correct, detail if result.correct else f"wrong sum: {detail}", **evidence)
