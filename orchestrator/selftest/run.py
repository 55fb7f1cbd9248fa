"""All phones answer at once; then those that are several are asked together; then, if wanted, with the screen off."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet.network import Network
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.provision.bundle import Bundle, build_bundles
from orchestrator.selftest import assumptions, phone_pairs, session
from orchestrator.selftest.callback_server import doorbell
from orchestrator.selftest.query import bring_agent, examine, take_agent_away
from orchestrator.selftest.report import Answer, PhoneReport, answered
from orchestrator.text import one_line
from phone_agent.contract.assumptions import Belief, Found, Status, WiredNetwork, unknown
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

ASLEEP: Final = ("cpuset", "sleeping")  # what is looked at again with the screen off
NOT_ASKED: Final = "somebody must switch the screen off: --interactive"

OnEvent = Callable[[Phone, "Belief | Answer"], None]  # begun, then answered; from any thread
Ask = Callable[[str], None]  # returns when the person has done it


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    fleet: Fleet
    network: Network


def selftest(site: Site, on_event: OnEvent, ask: Ask | None = None) -> tuple[PhoneReport, ...]:
    """One report a phone, in ring order; what could not be asked is in it."""
    with tempfile.TemporaryDirectory(prefix="clusterctl-") as scratch:
        return _Selftest(site, Path(scratch), on_event, ask).run()


class _Selftest:
    def __init__(self, site: Site, scratch: Path, on_event: OnEvent, ask: Ask | None) -> None:
        self._site = site
        self._scratch = scratch
        self._bundles: dict[str, Bundle] = {}  # by architecture
        self._on_event = on_event
        self._ask = ask
        self._virtual = site.cluster.lab is not None
        self._phones: Sequence[Phone] = site.fleet.phones
        self._architectures: dict[Phone, str] = {}
        self._answers: dict[Phone, dict[str, Answer]] = {phone: {} for phone in self._phones}

    def run(self) -> tuple[PhoneReport, ...]:
        address = str(self._site.cluster.host or self._site.network.source_address(str(self._phones[0].address)))
        with doorbell(self._listen(address)) as bell:
            lost = self._on_each(self._phones, self._first_look)
            self._bundles = build_bundles(set(self._architectures.values()), self._scratch)
            lost |= self._on_each(
                [phone for phone in self._phones if phone not in lost], lambda phone: self._inside(phone, bell)
            )
            there = [phone for phone in self._phones if phone not in lost]
            if len(there) > 1:
                self._several(there)
            self._screen_off(there, bell)
        self._site.fleet.map(take_agent_away, there)
        return tuple(self._report(phone, *lost.get(phone, (None, None))) for phone in self._phones)

    def _on_each(
        self, phones: Sequence[Phone], task: Callable[[PhoneConnection], None]
    ) -> dict[Phone, tuple[str | None, str | None]]:
        """Error and remedy of those that it failed on."""
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
        wanted = assumptions.all_beliefs(len(self._phones))
        why = unknown("the phone could not be asked" if error else "it gave no answer")
        found = self._answers[phone]
        answers = (found.get(belief.name) or answered(belief, why, 0.0, virtual=self._virtual) for belief in wanted)
        return PhoneReport(phone, self._virtual, tuple(answers), error, remedy)

    def _first_look(self, connection: PhoneConnection) -> None:
        phone, told = connection.phone, session.ask_session(connection)
        self._note(phone, assumptions.SESSION, session.judge_session(told))
        self._note(phone, assumptions.PRELOAD, session.judge_preload(told))
        self._note(phone, assumptions.CLOCK, session.judge_clock(told))
        if not told.told.get("python3"):
            remedy = f"clusterctl provision --limit {phone.name}"
            raise PhoneError(
                "there is no python3 in its PATH", code=ErrorCode.BROKEN_ENVIRONMENT, phase="exec", remedy=remedy
            )
        self._architectures[phone] = told.told.get("arch", "")

    def _inside(self, connection: PhoneConnection, bell: tuple[str, int]) -> None:
        architecture = self._architectures[connection.phone]
        if architecture not in self._bundles:
            raise PhoneError(
                f"the core has no kernels for its processor ({one_line(architecture, 40)})",
                code=ErrorCode.UNSUPPORTED_PHONE,
            )
        bring_agent(connection, self._bundles[architecture].path)
        for said in examine(connection, self._where(connection.phone, bell), virtual=self._virtual):
            self._tell(connection.phone, said)

    def _where(self, phone: Phone, bell: tuple[str, int]) -> WiredNetwork:
        return WiredNetwork(str(phone.address), self._site.cluster.interface, *bell)

    def _several(self, phones: Sequence[Phone]) -> None:
        following = dict(zip(phones, [*phones[1:], phones[0]], strict=True))

        def next_one(connection: PhoneConnection) -> None:
            self._look(
                connection.phone,
                assumptions.NEIGHBOUR,
                lambda: phone_pairs.log_in_to(connection, following[connection.phone]),
            )

        self._site.fleet.map(next_one, phones)
        head = self._site.fleet.connection(phones[0])
        started = time.monotonic()
        for phone in phones:
            self._on_event(phone, assumptions.TOGETHER)
        found = phone_pairs.sum_over(self._site.cluster, phones, head)
        for phone in phones:
            self._note(phone, assumptions.TOGETHER, found, time.monotonic() - started)

    def _screen_off(self, phones: Sequence[Phone], bell: tuple[str, int]) -> None:
        for phone in phones:
            if self._ask is None:
                self._note(phone, assumptions.SCREEN_OFF, unknown(NOT_ASKED))
                continue
            self._ask(f"Switch the screen of {phone} off, wait a minute, then press Enter here.")
            self._look(phone, assumptions.SCREEN_OFF, lambda phone=phone: self._asleep(phone, bell))  # type: ignore[misc]

    def _asleep(self, phone: Phone, bell: tuple[str, int]) -> Found:
        connection = self._site.fleet.connection(phone)
        said = examine(connection, self._where(phone, bell), virtual=False, only=ASLEEP)
        answers = {answer.belief.name: answer for answer in said if isinstance(answer, Answer)}
        if set(answers) != set(ASLEEP):
            return unknown("it did not answer with the screen off")
        worst = next((each.status for each in answers.values() if each.status is not Status.OK), Status.OK)
        told = "; ".join(answer.told for answer in answers.values())
        return Found(worst, told, {name: dict(answer.evidence) for name, answer in answers.items()})

    def _look(self, phone: Phone, belief: Belief, look: Callable[[], Found]) -> None:
        self._on_event(phone, belief)
        started = time.monotonic()
        try:
            found = look()
        except PhoneError as error:
            found = unknown(error.message)
        self._note(phone, belief, found, time.monotonic() - started)

    def _note(self, phone: Phone, belief: Belief, found: Found, seconds: float = 0.0) -> None:
        self._tell(phone, answered(belief, found, seconds, virtual=self._virtual))

    def _tell(self, phone: Phone, said: Belief | Answer) -> None:
        if isinstance(said, Answer):
            self._answers[phone][said.belief.name] = said
        self._on_event(phone, said)
