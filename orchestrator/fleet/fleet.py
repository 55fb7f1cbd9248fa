"""The phones of a command, each behind one connection that is made on first use and kept to the end."""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet.connection import PhoneConnection
from orchestrator.fleet.dial import Dialer
from orchestrator.fleet.errors import Unreachable
from orchestrator.fleet.hostkeys import HostKeys
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.network import Line
from orchestrator.fleet.parallel import map_phones
from orchestrator.fleet.quote import printable
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.fleet.tcp_probe import answers
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode, code_of

T = TypeVar("T")

_DEFAULT_TIMEOUTS = Timeouts()
_SPARE_FILES = 64  # what this process keeps open besides phones
_log = logging.getLogger(__name__)


class Fleet:
    def __init__(
        self,
        phones: Iterable[Phone],
        state: ClusterState,
        network: Line,
        *,
        key: Path | None = None,
        trust_new: bool = False,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        workers: int = 64,
    ) -> None:
        self.phones = tuple(phones)
        self._timeouts = timeouts.on_phones_so_slow(network.slowness)
        self._network = network
        self._workers = min(workers, _openable_files(len(self.phones)))
        key_path = key or state.host_key
        hosts = HostKeys(state.known_hosts)
        login = load_private_key(key_path)
        self._dialer = Dialer(network, login, key_path, hosts, self._timeouts, trust_new=trust_new)
        self._lines = {phone: _Line() for phone in self.phones}
        self._closed = False

    def connection(self, phone: Phone) -> PhoneConnection:
        """Connects if there is no connection yet, or no more. Raises PhoneError, Unreachable among them."""
        line = self._lines[phone]
        with line.lock:
            if line.connection is None or not line.connection.alive:
                line.connection = self._connect(phone)
            return line.connection

    def map(
        self,
        task: Callable[[PhoneConnection], T],
        phones: Iterable[Phone] | None = None,
        *,
        on_done: Callable[[Outcome[T]], None] | None = None,
        knock: bool = False,
    ) -> Outcomes[T]:
        """Runs a task on each phone; failures come back as values. Ctrl-C raises FleetInterrupted.

        `knock`: find out first who is on the network at all. One that is gone then costs two seconds, not twenty.
        """
        chosen = self.phones if phones is None else tuple(phones)
        return map_phones(lambda phone: self._outcome(phone, task, knock=knock), chosen, self._workers, on_done)

    def close(self) -> None:
        """Hangs up on everybody first: whoever still works for us is told before anyone is waited for."""
        self._closed = True
        connections = [line.connection for line in self._lines.values() if line.connection]
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _connect(self, phone: Phone) -> PhoneConnection:
        connection = PhoneConnection(phone, self._dialer.dial(phone), self._timeouts)
        if self._closed:  # while it was dialling, in a thread that nobody waits for any more
            connection.close()
            raise Unreachable("the fleet was closed", code=ErrorCode.CANCELLED, phase=Phase.CANCELLED)
        return connection

    def _outcome(self, phone: Phone, task: Callable[[PhoneConnection], T], *, knock: bool) -> Outcome[T]:
        started = time.monotonic()
        try:
            if knock:
                self._knock(phone)
            value = task(self.connection(phone))
        except Exception as error:  # noqa: BLE001  (one phone's exception never ends the work on the others)
            return _failure(phone, error, time.monotonic() - started)
        return Outcome(phone, Status.OK, time.monotonic() - started, value=value)

    def _knock(self, phone: Phone) -> None:
        """A connection to one that is gone is given up: it may come back, and knows nothing of it then."""
        if answers(self._network, phone):
            return
        if connection := self._lines[phone].connection:
            connection.hang_up()
        cable = f"check power and cable at {phone.where}, and the phone's address"
        raise Unreachable("it is not on the network", phase=Phase.TCP, remedy=cable, code=ErrorCode.NO_ANSWER)


class _Line:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: PhoneConnection | None = None


def _failure(phone: Phone, error: Exception, seconds: float) -> Outcome[T]:
    if isinstance(error, PhoneError):
        status = Status.UNREACHABLE if isinstance(error, Unreachable) else Status.FAILED
        return Outcome(
            phone,
            status,
            seconds,
            phase=_phase(error),
            error=error.message,
            code=error.code,
            remedy=error.remedy,
            raised=error,
        )
    code = code_of(error)
    if isinstance(error, ClusterctlError):
        return Outcome(
            phone, Status.FAILED, seconds, phase=Phase.EXEC, error=error.message, code=code, remedy=error.remedy
        )
    _log.debug("%s", phone, exc_info=error)
    described = printable(f"{type(error).__name__}: {error}")
    return Outcome(phone, Status.FAILED, seconds, phase=Phase.EXEC, error=described, code=code)


def _phase(error: PhoneError) -> Phase:
    try:
        return Phase(error.phase)
    except ValueError:  # a task's own word for where it was
        return Phase.EXEC


def _openable_files(phones: int) -> int:
    """How many phones can be open at once; asks for more descriptors where the limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = phones + _SPARE_FILES
    if wanted > soft:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - _SPARE_FILES)
