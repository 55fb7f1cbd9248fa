"""What takes two phones: a login from one to the next, and a sum over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.bench.allreduce import AllreduceRequest, bench_allreduce
from orchestrator.errors import ClusterctlError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.text import one_line
from phone_agent.contract.assumptions import Found, failed, judged, ok

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

REQUEST: Final = AllreduceRequest(megabytes=4.0, repeats=3)
_SSH: Final = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
_PATIENCE_S: Final = 40.0
_USAGE: Final = "Open RTE Daemon"  # what it calls itself


def log_in_to(connection: PhoneConnection, neighbour: Phone) -> Found:
    """With a whole handshake, as mpirun would: what only opens the port is counted against the caller."""
    ssh = ("ssh", *_SSH, "-p", str(neighbour.ssh_port), "--", str(neighbour.address))
    done = connection.run((*ssh, "orted", "--help"), timeout=_PATIENCE_S)
    way = f"{connection.phone.name} to {neighbour.name}"
    if _USAGE in done.stdout + done.stderr:  # its exit code for that is 1
        return ok(f"{way}: orted starts")
    said = one_line(" ".join((done.stderr or done.stdout).split())[-300:])
    return failed(f"{way}: exit code {done.rc}: {said}")


def sum_over(cluster: Cluster, phones: Sequence[Phone], head: PhoneConnection) -> Found:
    try:
        result = bench_allreduce(cluster, phones, head, REQUEST)
    except ClusterctlError as error:
        return failed(one_line(error.message, 1000))
    share = f"{result.line_rate_fraction:.0%} of the line's rate"
    evidence = {"seconds": result.all_seconds, "bytes": result.bytes, "cpu_seconds": result.cpu_seconds}
    told = f"{REQUEST.megabytes:g} MB over {len(phones)} phones in {result.seconds:.3f} s, {share}"
    return judged(result.correct, told if result.correct else f"a wrong sum: {told}", **evidence)
