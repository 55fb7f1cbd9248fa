"""Open MPI's daemons. mpirun on the head phone asks for one per phone; this computer starts them.

Phones cannot start programs on each other: mpirun calls RECORD_SCRIPT instead of ssh, which writes down what mpirun
would have run. The head phone may be hostile, so three values are taken from it, each validated; everything else on the
command line of a daemon is ours. A daemon starts nothing but the agent (phone_agent/rank_launcher).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING

from orchestrator.fleet import agent
from orchestrator.inventory.model import Phone
from orchestrator.launch.mpirun import bind_to, environment
from orchestrator.launch.stage import StagingError
from phone_agent.contract import layout
from phone_agent.contract.decode import DecodeError
from phone_agent.contract.replies import DaemonRequests

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

# mpirun calls it with the address of a phone and the words of a command.
RECORD_SCRIPT = b"""printf '%s\\n' "$*" >"${0%/*}/$1"\n"""
_LAUNCHER = layout.CURRENT / "phone_agent" / "rank_launcher" / "rank_launcher"
_START_SCRIPT = (
    f'launcher=$(readlink -f {_LAUNCHER}) && verb=$1 && shift && exec "$@" -mca orte_fork_agent "$launcher $verb --"'
)
_START_S = 60.0
_PER_DAEMON_S = 0.1  # mpirun calls the script once per phone

_OWN = {
    "ess": "env",
    "plm": "rsh",
    "pmix": "^s1,s2,cray,isolated",
    "filem": "^raw",  # it would accept files from mpirun
}


@dataclass(frozen=True)
class Job:
    """An mpirun on the head phone. Ranks run the agent with `verb`, whatever mpirun asks for."""

    run_id: str
    attempt: int
    phones: tuple[Phone, ...]  # the head phone first
    verb: tuple[str, ...]
    parameters: Mapping[str, str]  # of mpirun and its daemons

    def __post_init__(self) -> None:
        if any(not word or set(word) & set(" \t\n") for word in self.verb):
            raise ValueError("Open MPI splits the command of a fork agent at spaces")

    @property
    def daemon_phones(self) -> tuple[Phone, ...]:
        """mpirun is the daemon of the head phone. In a lab on the loopback interface, it does not recognize its own
        address, and asks for a daemon there as well."""
        return self.phones if self.phones[0].address.is_loopback else self.phones[1:]


def start_daemons(fleet: Fleet, job: Job) -> None:
    """Starts the daemons that mpirun waits for. Raises StagingError if phones refuse."""
    if not job.daemon_phones:
        return
    requests = _await_requests(fleet.connection(job.phones[0]), job)

    def start(connection: PhoneConnection) -> int:
        address = str(connection.phone.address)
        daemon = ("orted", "--daemonize", *mca_arguments(job, requests, address))
        argv = ("bash", "-c", _START_SCRIPT, "bash", " ".join(job.verb), *bind_to(address), *daemon)
        connection.run(argv, env=environment(), timeout=_START_S, check=True)
        return 1

    outcomes = fleet.map(start, job.daemon_phones)
    if outcomes.failures:
        raise StagingError(outcomes.failures, "Open MPI's daemon did not start on")


def mca_arguments(job: Job, requests: DaemonRequests, address: str) -> list[str]:
    parameters = {
        **_OWN,
        **job.parameters,
        "ess_base_jobid": requests.uri.partition(".")[0],
        "ess_base_vpid": str(requests.vpids[address]),
        "ess_base_num_procs": str(len(job.daemon_phones) + 1),
        **({"orte_node_regex": requests.node_regex} if requests.node_regex else {}),
        "orte_hnp_uri": requests.uri,
    }
    return [word for name, value in parameters.items() for word in ("-mca", name, value)]


def _await_requests(head: PhoneConnection, job: Job) -> DaemonRequests:
    count = len(job.daemon_phones)
    wait_s = _START_S + _PER_DAEMON_S * count
    numbers = {"--attempt": job.attempt, "--count": count, "--timeout": round(wait_s)}
    flags = [word for flag, value in numbers.items() for word in (flag, str(value))]
    requests = agent.call(head, DaemonRequests, "daemons", job.run_id, *flags, timeout=wait_s + _START_S)
    try:
        check_requests(requests, job)
    except DecodeError as error:
        raise agent.bad_answer(head.phone, "daemons", error) from None
    return requests


def check_requests(requests: DaemonRequests, job: Job) -> None:
    """Raises DecodeError. In a lab on the loopback interface, Open MPI sees one address."""
    if requests.vpids.keys() != {str(phone.address) for phone in job.daemon_phones}:
        raise DecodeError("vpids: not the phones of the run")
    if len(set(requests.vpids.values())) != len(requests.vpids):
        raise DecodeError("vpids: two daemons with the same number")
    head = job.phones[0].address
    try:
        contact = IPv4Address(requests.uri.partition("//")[2].partition(":")[0])
    except AddressValueError:
        raise DecodeError("uri: not an address") from None
    if contact != head and not (contact.is_loopback and head.is_loopback):
        raise DecodeError(f"uri: mpirun at {contact} instead of {head}")
