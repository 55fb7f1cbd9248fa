"""Short work of all phones together, that is no run: mpirun on the head phone, and what its rank 0 says in the end."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ClusterctlError
from orchestrator.inventory import hostfile
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.launch.mpirun import environment, mpirun_argv, on_the_wire
from orchestrator.launch.run_spec import common_ssh_port
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.errors import read_error_line

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_PID_FILE = "pid"
_TELLING_ITS_PID = 'echo $$ >"$1" && shift && exec "$@"'
_END = 'kill "$(cat "$1")"; rm -rf -- "$2"'


def work_together(  # noqa: PLR0917 - whose work, what it is, and for how long
    cluster: Cluster, ranks: Sequence[Phone], head: PhoneConnection, name: str, verb: Sequence[str], timeout: float
) -> dict[str, Any]:
    """`verb`: what every phone runs. Whatever ends the wait, be it Ctrl-C, ends the work as well."""
    directory = layout.run_dir(f"{name}-{secrets.token_hex(4)}")
    hosts, pid = directory / layout.HOSTFILE, str(directory / _PID_FILE)
    argv = mpirun_argv(len(ranks), str(hosts), cluster.subnet, common_ssh_port(ranks), verb)
    # Ends on the phone as well: nobody there notices that this computer is gone, and the ranks would go on.
    bounded = ("timeout", "-k", "10", f"{timeout:.0f}", *on_the_wire(str(ranks[0].address)), *argv)
    head.put(hostfile(ranks).encode(), hosts)
    try:
        told = ("bash", "-c", _TELLING_ITS_PID, "bash", pid, *bounded)
        result = head.run(told, env=environment(), timeout=timeout + 15)
    except BaseException:
        head.run(["bash", "-c", _END, "bash", pid, str(directory)])
        raise
    head.run(["rm", "-rf", "--", str(directory)])
    return _report(name, result.stdout, result.stderr)


def _report(name: str, stdout: str, stderr: str) -> dict[str, Any]:
    """Rank 0's line; whatever else was printed is in the way."""
    for line in reversed(stdout.splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and "seconds" in report:
            return report
    reported = read_error_line(stderr)
    said = [reported[1]] if reported else [line for line in (stderr or stdout).splitlines() if line.strip("- ")]
    raise ClusterctlError(
        "\n".join([f"the {name} did not finish:", *(f"  {one_line(line, 160)}" for line in said[-8:])]),
        remedy="clusterctl status",
    )
