"""Many phones: one SSH connection per phone, opened on first use and reused."""

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
from orchestrator.fleet.connect import Connector
from orchestrator.fleet.connection import PhoneConnection
from orchestrator.fleet.errors import Unreachable
from orchestrator.fleet.host_keys import HostKeys
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.network import Dialer
from orchestrator.fleet.parallel import map_phones
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.fleet.tcp_probe import is_reachable
from orchestrator.fleet.timeouts import Timeouts
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode, code_of
from phone_agent.contract.text import lines

T = TypeVar("T")

_DEFAULT_TIMEOUTS = Timeouts()
_SPARE_FILES = 64  # what this process keeps open besides phones
_log = logging.getLogger(__name__)


class Fleet:
    def __init__(
        self,
        phones: Iterable[Phone],
        state: ClusterState,
        network: Dialer,
        *,
        key: Path | None = None,
        trust_new: bool = False,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        workers: int = 64,
    ) -> None:
        self.phones = tuple(phones)
        self._timeouts = timeouts.scaled(network.time_scale)
        self._network = network
        self._workers = min(workers, _openable_files(len(self.phones)))
        key_path = key or state.host_key
        hosts = HostKeys(state.known_hosts)
        login = load_private_key(key_path)
        self._connector = Connector(network, login, key_path, hosts, self._timeouts, trust_new=trust_new)
        self._slots = {phone: _Slot() for phone in self.phones}
        self._closed = False

    def connection(self, phone: Phone) -> PhoneConnection:
        """The open connection to a phone; connects if necessary. Raises PhoneError or Unreachable."""
        line = self._slots[phone]
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
        probe_first: bool = False,
    ) -> Outcomes[T]:
        """Run a task on each phone. Failures are returned as values; Ctrl-C raises FleetInterrupted.

        `probe_first`: find out first who is on the network at all. One that is gone then costs two seconds, not twenty.
        """
        chosen = self.phones if phones is None else tuple(phones)
        return map_phones(
            lambda phone: self._outcome(phone, task, probe_first=probe_first), chosen, self._workers, on_done
        )

    def close(self) -> None:
        """Abort all connections first, so that no phone keeps working while others are being closed."""
        self._closed = True
        connections = [line.connection for line in self._slots.values() if line.connection]
        for connection in connections:
            connection.abort()
        for connection in connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _connect(self, phone: Phone) -> PhoneConnection:
        connection = PhoneConnection(phone, self._connector.connect(phone), self._timeouts)
        if self._closed:  # closed while connecting, in a thread that was abandoned
            connection.close()
            raise Unreachable("the fleet was closed", code=ErrorCode.CANCELLED, phase=Phase.CANCELLED)
        return connection

    def _outcome(self, phone: Phone, task: Callable[[PhoneConnection], T], *, probe_first: bool) -> Outcome[T]:
        started = time.monotonic()
        try:
            if probe_first:
                self._probe(phone)
            value = task(self.connection(phone))
        except Exception as error:  # noqa: BLE001  (one phone's exception never ends the work on the others)
            return _failure(phone, error, time.monotonic() - started)
        return Outcome(phone, Status.OK, time.monotonic() - started, value=value)

    def _probe(self, phone: Phone) -> None:
        """Raise Unreachable if the phone is off the network, and drop its connection: it will not survive a reboot."""
        if is_reachable(self._network, phone):
            return
        if connection := self._slots[phone].connection:
            connection.abort()
        cable = f"check power and cable at {phone.where}, and the phone's address"
        raise Unreachable("not on the network", phase=Phase.TCP, remedy=cable, code=ErrorCode.NO_ANSWER)


class _Slot:
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
    described = lines(f"{type(error).__name__}: {error}")
    return Outcome(phone, Status.FAILED, seconds, phase=Phase.EXEC, error=described, code=code)


def _phase(error: PhoneError) -> Phase:
    try:
        return Phase(error.phase)
    except ValueError:  # a phase defined by the task
        return Phase.EXEC


def _openable_files(phones: int) -> int:
    """How many connections can be open at once; raises the soft limit of file descriptors if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = phones + _SPARE_FILES
    if wanted > soft:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - _SPARE_FILES)
