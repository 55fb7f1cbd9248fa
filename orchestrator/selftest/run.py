"""Runs the selftest: on all phones in parallel, then between phones, then (interactively) with the screen off."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import Fleet, PhoneConnection
from orchestrator.fleet.network import Network
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.provision.bundle import Bundle, build_bundles
from orchestrator.selftest import assumptions, host_checks
from orchestrator.selftest.query import check_assumptions, install_agent, remove_agent
from orchestrator.selftest.report import AssumptionResult, PhoneReport, assess
from orchestrator.text import one_line
from phone_agent.contract.assumptions import Assumption, CheckResult, Status, WiredNetwork, unknown
from phone_agent.contract.errors import ErrorCode

SCREEN_OFF_CHECKS: Final = ("cpuset", "sleep-precision")  # repeated with the screen off
NOT_INTERACTIVE: Final = "needs someone to turn the screen off: use --interactive"

OnEvent = Callable[[Phone, "Assumption | AssumptionResult"], None]  # check started, then its result; from any thread
Prompt = Callable[[str], None]  # returns when the user has done it
_TIMEOUT_S = 8.0
_MAX_GREETING_BYTES = 64


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    fleet: Fleet
    network: Network


def selftest(site: Site, on_event: OnEvent, prompt: Prompt | None = None) -> tuple[PhoneReport, ...]:
    """One report per phone, in ring order, including phones that could not be tested."""
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as scratch:
        return _Selftest(site, Path(scratch), on_event, prompt).run()


class _Selftest:
    def __init__(self, site: Site, scratch: Path, on_event: OnEvent, prompt: Prompt | None) -> None:
        self._site = site
        self._scratch = scratch
        self._bundles: dict[str, Bundle] = {}  # by architecture
        self._on_event = on_event
        self._prompt = prompt
        self._virtual = site.cluster.lab is not None
        self._phones: Sequence[Phone] = site.fleet.phones
        self._architectures: dict[Phone, str] = {}
        self._results: dict[Phone, dict[str, AssumptionResult]] = {phone: {} for phone in self._phones}

    def run(self) -> tuple[PhoneReport, ...]:
        address = str(self._site.cluster.host or self._site.network.source_address(str(self._phones[0].address)))
        with callback_server(self._listen(address)) as server:
            lost = self._on_each(self._phones, self._check_session)
            self._bundles = build_bundles(set(self._architectures.values()), self._scratch)
            lost |= self._on_each(
                [phone for phone in self._phones if phone not in lost],
                lambda phone: self._check_on_phone(phone, server),
            )
            reachable = [phone for phone in self._phones if phone not in lost]
            if len(reachable) > 1:
                self._check_between(reachable)
            self._check_screen_off(reachable, server)
        self._site.fleet.map(remove_agent, reachable)
        return tuple(self._report(phone, *lost.get(phone, (None, None))) for phone in self._phones)

    def _on_each(
        self, phones: Sequence[Phone], task: Callable[[PhoneConnection], None]
    ) -> dict[Phone, tuple[str | None, str | None]]:
        """Error and remedy of each phone on which the task failed."""
        return {each.phone: (each.error, each.remedy) for each in self._site.fleet.map(task, phones).failures}

    def _listen(self, address: str) -> socket.socket:
        try:
            return self._site.network.listen(address, 0)
        except OSError as error:
            raise ClusterctlError(
                f"cannot listen on {address}: {error.strerror}",
                remedy="network.host in the inventory must be this computer's address on the wired network",
            ) from error

    def _report(self, phone: Phone, error: str | None, remedy: str | None) -> PhoneReport:
        expected = assumptions.all_assumptions(len(self._phones))
        missing = unknown("not tested" if error else "no result from the phone")
        received = self._results[phone]
        results = (
            received.get(assumption.name) or assess(assumption, missing, 0.0, virtual=self._virtual)
            for assumption in expected
        )
        return PhoneReport(phone, self._virtual, tuple(results), error, remedy)

    def _check_session(self, connection: PhoneConnection) -> None:
        phone, probed = connection.phone, host_checks.probe_session(connection)
        self._record(phone, assumptions.SESSION, host_checks.check_session(probed))
        self._record(phone, assumptions.PRELOAD, host_checks.check_preload(probed))
        self._record(phone, assumptions.CLOCK, host_checks.check_clock(probed))
        if not probed.values.get("python3"):
            remedy = f"clusterctl provision --limit {phone.name}"
            raise PhoneError(
                "python3 is not in the PATH", code=ErrorCode.BROKEN_ENVIRONMENT, phase="exec", remedy=remedy
            )
        self._architectures[phone] = probed.values.get("arch", "")

    def _check_on_phone(self, connection: PhoneConnection, server: tuple[str, int]) -> None:
        architecture = self._architectures[connection.phone]
        if architecture not in self._bundles:
            raise PhoneError(
                f"the core has no kernels for this processor ({one_line(architecture, 40)})",
                code=ErrorCode.UNSUPPORTED_PHONE,
            )
        install_agent(connection, self._bundles[architecture].path)
        for event in check_assumptions(connection, self._wired(connection.phone, server), virtual=self._virtual):
            self._emit(connection.phone, event)

    def _wired(self, phone: Phone, server: tuple[str, int]) -> WiredNetwork:
        return WiredNetwork(str(phone.address), self._site.cluster.interface, *server)

    def _check_between(self, phones: Sequence[Phone]) -> None:
        next_phone = dict(zip(phones, [*phones[1:], phones[0]], strict=True))

        def login(connection: PhoneConnection) -> None:
            self._run_check(
                connection.phone,
                assumptions.NEIGHBOR_LOGIN,
                lambda: host_checks.check_login(connection, next_phone[connection.phone]),
            )

        self._site.fleet.map(login, phones)
        started = time.monotonic()
        for phone in phones:
            self._on_event(phone, assumptions.ALLREDUCE)
        result = host_checks.check_allreduce(self._site.cluster, self._site.fleet, phones)
        for phone in phones:
            self._record(phone, assumptions.ALLREDUCE, result, time.monotonic() - started)

    def _check_screen_off(self, phones: Sequence[Phone], server: tuple[str, int]) -> None:
        for phone in phones:
            if self._prompt is None:
                self._record(phone, assumptions.SCREEN_OFF, unknown(NOT_INTERACTIVE))
                continue
            self._prompt(f"Turn off the screen of {phone}, wait a minute, then press Enter here.")
            self._run_check(phone, assumptions.SCREEN_OFF, lambda phone=phone: self._repeat_checks(phone, server))  # type: ignore[misc]

    def _repeat_checks(self, phone: Phone, server: tuple[str, int]) -> CheckResult:
        connection = self._site.fleet.connection(phone)
        events = check_assumptions(connection, self._wired(phone, server), virtual=False, only=SCREEN_OFF_CHECKS)
        results = {event.assumption.name: event for event in events if isinstance(event, AssumptionResult)}
        if set(results) != set(SCREEN_OFF_CHECKS):
            return unknown("no results with the screen off")
        worst = next((each.status for each in results.values() if each.status is not Status.OK), Status.OK)
        detail = "; ".join(result.detail for result in results.values())
        return CheckResult(worst, detail, {name: dict(result.evidence) for name, result in results.items()})

    def _run_check(self, phone: Phone, assumption: Assumption, check: Callable[[], CheckResult]) -> None:
        self._on_event(phone, assumption)
        started = time.monotonic()
        try:
            result = check()
        except PhoneError as error:
            result = unknown(error.message)
        self._record(phone, assumption, result, time.monotonic() - started)

    def _record(self, phone: Phone, assumption: Assumption, result: CheckResult, seconds: float = 0.0) -> None:
        self._emit(phone, assess(assumption, result, seconds, virtual=self._virtual))

    def _emit(self, phone: Phone, event: Assumption | AssumptionResult) -> None:
        if isinstance(event, AssumptionResult):
            self._results[phone][event.assumption.name] = event
        self._on_event(phone, event)


@contextmanager
def callback_server(listener: socket.socket) -> Iterator[tuple[str, int]]:
    """A TCP server on the wired address of the host; yields that address.

    Phones connect to it and receive the address they were seen with.
    """
    thread = threading.Thread(target=_serve, args=(listener,), daemon=True, name="callback-server")
    thread.start()
    host, port = listener.getsockname()[:2]
    try:
        yield str(host), int(port)
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        thread.join()
        listener.close()


def _serve(listener: socket.socket) -> None:
    with suppress(OSError):  # the listener was shut down
        while True:
            connection, client = listener.accept()
            with connection, suppress(OSError):  # the client may disconnect
                connection.settimeout(_TIMEOUT_S)
                connection.recv(_MAX_GREETING_BYTES)
                connection.sendall(f"{client[0]}\n".encode())
