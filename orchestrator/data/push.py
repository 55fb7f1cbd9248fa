"""Datasets to phones: one stream a switch, passed on from phone to phone there (phone_agent.data.receive).

Only what is missing or wrong travels, so a push that was interrupted goes on where it stopped. A phone that fails takes
those behind it in its chain along; they get theirs in another round, with the one that failed at the end of it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.data.store import Stored
from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.fleet.copy import content
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from phone_agent.contract.dataset_delivery import Delivery, Hop
from phone_agent.contract.dataset_manifest import DatasetManifest, ShardFile, Span, shards_with
from phone_agent.contract.errors import ErrorCode, parse_code
from phone_agent.contract.sizes import format_size

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

COMFORTABLE = 0.25  # of a phone's free space: so much of it a dataset may take before phones get shares
SPARE_BYTES = 200_000_000  # stay free on a phone
ATTEMPTS = 2
SLOWEST = 1_000_000  # bytes a second: a push that is slower is given up
VERIFY_TIMEOUT = 3600.0

OnProgress = Callable[[int, int, Sequence[Phone]], None]  # bytes sent, bytes in all, phones still without theirs


class RottenError(ClusterctlError):
    """A shard of this computer's own is damaged: every phone would refuse it, and none is to blame. `phones`: those
    that lack it."""

    def __init__(self, stored: Stored, file: ShardFile, phones: Iterable[str]) -> None:
        self.phones = tuple(phones)
        message = f"{stored.directory / file.name} is damaged, here on this computer: no phone takes it"
        super().__init__(message, remedy=f"clusterctl data remove {stored.name}, then add it again")


@dataclass(frozen=True)
class Held:
    """What a phone has of a dataset, and room for more."""

    digest: str | None
    free_bytes: int
    files: Mapping[str, str]  # sha256 by name

    def lacks(self, manifest: DatasetManifest, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(
            file.name for file in manifest.files if file.name in wanted and self.files.get(file.name) != file.sha256
        )


@dataclass(frozen=True)
class Pushed:
    """What became of it: one outcome a phone, its value the bytes that had to travel to it."""

    outcomes: Outcomes[int]
    whole: bool
    sent_bytes: int  # from this computer
    seconds: float


def wanted_files(manifest: DatasetManifest, spans: Sequence[Span], *, whole: bool) -> frozenset[str]:
    """All held-out samples, and of the others all or those spans."""
    train = manifest.train if whole else shards_with(manifest.train, spans)
    return frozenset(file.name for file in (*train, *manifest.test))


def all_to_all(manifest: DatasetManifest, held: Sequence[Held], spans: Sequence[Sequence[Span]]) -> bool:
    """Where nobody said: as it lies on the phones, if all have all or each has its share; else by the room there is."""
    everything = wanted_files(manifest, (), whole=True)
    complete = [not each.lacks(manifest, everything) for each in held]
    if all(complete):
        return True
    shares = (wanted_files(manifest, each, whole=False) for each in spans)
    dealt = all(not each.lacks(manifest, share) for each, share in zip(held, shares, strict=True))
    return not (dealt and not any(complete)) and fits_comfortably(manifest, held)


def fits_comfortably(manifest: DatasetManifest, held: Sequence[Held]) -> bool:
    sizes = {file.name: file.bytes for file in manifest.files}
    return all(
        manifest.bytes <= COMFORTABLE * (each.free_bytes + sum(sizes.get(name, 0) for name in each.files))
        for each in held
    )


@dataclass
class Push:
    """`spans`: the samples each phone is to have where not all have all; `whole`: None decides by what is there."""

    fleet: Fleet
    stored: Stored
    phones: Sequence[Phone]
    spans: Sequence[Sequence[Span]]
    whole: bool | None = None
    verify: bool = False  # read again what phones say they have
    on_progress: OnProgress = lambda _sent, _total, _left: None
    _done: dict[Phone, Outcome[int]] = field(default_factory=dict)
    _failed: dict[Phone, int] = field(default_factory=dict)
    _travelled: dict[Phone, int] = field(default_factory=dict)
    _rotten: set[ShardFile] = field(default_factory=set)  # here
    _sent: int = 0
    _total: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Pushed:
        started = time.monotonic()
        pending = list(self.phones)
        held = self._ask(pending, verify=self.verify)
        spans = dict(zip(self.phones, self.spans, strict=True))
        whole = self.whole
        if whole is None:
            whole = all_to_all(self._manifest, list(held.values()), [spans[phone] for phone in held])
        wanted = {phone: wanted_files(self._manifest, spans[phone], whole=whole) for phone in self.phones}
        while held:
            lacking = self._lacking(held, wanted)
            if not lacking:
                break
            self._round(lacking)
            held = self._ask([phone for phone in lacking if phone not in self._done], verify=False)
        outcomes = Outcomes(tuple(self._done[phone] for phone in self.phones))
        return Pushed(outcomes, whole, self._sent, time.monotonic() - started)

    @property
    def _manifest(self) -> DatasetManifest:
        return self.stored.manifest

    def _ask(self, phones: Sequence[Phone], *, verify: bool) -> dict[Phone, Held]:
        """Those that answer; the others are done, badly."""
        flags = ["--verify"] if verify else []

        def ask(connection: PhoneConnection) -> Held:
            raw = agent.call(connection, "data-list", self.stored.name, *flags, timeout=VERIFY_TIMEOUT)
            try:
                return Held(raw["digest"], int(raw["free_bytes"]), dict(raw["files"]))
            except (KeyError, TypeError, ValueError):
                raise PhoneError(
                    "data-list answered with something else", code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision"
                ) from None

        outcomes = self.fleet.map(ask, phones)
        for outcome in outcomes.failures:
            self._done[outcome.phone] = _failed(outcome)
        return dict(outcomes.values())

    def _lacking(
        self, held: Mapping[Phone, Held], wanted: Mapping[Phone, frozenset[str]]
    ) -> dict[Phone, frozenset[str]]:
        lacking: dict[Phone, frozenset[str]] = {}
        for phone, has in held.items():
            missing = has.lacks(self._manifest, wanted[phone])
            size = self._size(missing)
            if not missing and has.digest == self._manifest.digest:
                self._finish(phone)
            elif phone in self._travelled:
                self._fail(phone, "what was sent is not there any more", ErrorCode.DATA_MISSING, final=True)
            elif size + SPARE_BYTES > has.free_bytes:
                room = f"{format_size(size)} are missing, and only {format_size(has.free_bytes)} are free"
                self._fail(phone, room, ErrorCode.DISK_FULL, final=True)
            else:
                lacking[phone] = missing
        return lacking

    def _round(self, lacking: Mapping[Phone, frozenset[str]]) -> None:
        """One chain a switch, all at once."""
        chains: dict[str, list[Phone]] = {}
        for phone in sorted(lacking, key=lambda phone: self._failed.get(phone, 0)):  # stable: else in ring order
            chains.setdefault(phone.switch, []).append(phone)
        deliveries = {
            chain[0]: Delivery(self._manifest, tuple(_stop(phone, lacking[phone]) for phone in chain))
            for chain in chains.values()
        }
        with self._lock:
            self._total = self._sent + sum(file.bytes for each in deliveries.values() for file in each.files)
        self._tell()
        outcomes = self.fleet.map(
            lambda connection: self._deliver(connection, deliveries[connection.phone]), list(deliveries)
        )
        if self._rotten:
            rotten = min(self._rotten, key=lambda file: file.name)
            lacking_it = [phone.name for phone, files in lacking.items() if rotten.name in files]
            raise RottenError(self.stored, rotten, lacking_it)
        for outcome in outcomes.failures:
            if outcome.phone not in self._done:
                self._fail(outcome.phone, outcome.error or "", outcome.code or ErrorCode.UNKNOWN, outcome=outcome)

    def _deliver(self, connection: PhoneConnection, delivery: Delivery) -> None:
        size = sum(file.bytes for file in delivery.files)
        result = connection.run(
            agent.argv("data-receive"),
            stdin=self._stream(delivery),
            env=agent.ENVIRONMENT,
            timeout=600 + size / SLOWEST,
        )
        answers = _answers(result.stdout)
        if delivery.route[0].phone not in answers:
            code, said = agent.reported(result.stderr, result.rc)
            raise PhoneError(f"data-receive: {said[-300:]}", code=code, remedy="clusterctl provision")
        self._judge(delivery.route, answers)

    def _judge(self, route: Sequence[Hop], answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Behind the first that failed or said nothing, errors may be its fault: those phones get another round."""
        by_name = {phone.name: phone for phone in self.phones}
        broken = False
        for stop in route:
            answer = answers.get(stop.phone)
            if answer and not answer["error"]:
                self._travelled[by_name[stop.phone]] = self._size(stop.files)
            elif answer and not broken:
                self._fail(by_name[stop.phone], str(answer["error"]), parse_code(answer["code"]))
                self._suspect_named(answer["file"])
            broken = broken or not answer or bool(answer["error"])

    def _suspect_named(self, name: Any) -> None:
        """What arrived damaged may have left so. Not read before it is sent: that would take a large set long."""
        for file in self._manifest.files:
            if file.name == name:
                self._suspect(file)

    def _suspect(self, file: ShardFile) -> None:
        if not self.stored.has(file):
            self._rotten.add(file)

    def _stream(self, delivery: Delivery) -> Iterator[bytes]:
        yield delivery.line()
        for file in delivery.files:
            yield from self._pieces(file)
            self._tell()

    def _pieces(self, file: ShardFile) -> Iterator[bytes]:
        try:
            for piece in content(self.stored.directory / file.name, file.bytes):
                with self._lock:
                    self._sent += len(piece)
                yield piece
        except OSError:
            self._suspect(file)
            raise

    def _size(self, names: frozenset[str]) -> int:
        return sum(file.bytes for file in self._manifest.files if file.name in names)

    def _finish(self, phone: Phone) -> None:
        self._done[phone] = Outcome(phone, Status.OK, 0.0, value=self._travelled.get(phone, 0))

    def _fail(
        self, phone: Phone, error: str, code: ErrorCode, *, final: bool = False, outcome: Outcome[Any] | None = None
    ) -> None:
        self._failed[phone] = self._failed.get(phone, 0) + 1
        if final or self._failed[phone] >= ATTEMPTS:
            status = outcome.status if outcome else Status.FAILED
            remedy = (outcome and outcome.remedy) or f"clusterctl status --limit {phone.name}"
            self._done[phone] = Outcome(phone, status, 0.0, phase=Phase.COPY, error=error, code=code, remedy=remedy)

    def _tell(self) -> None:
        left = [phone for phone in self.phones if phone not in self._done]
        self.on_progress(self._sent, self._total, left)


def _stop(phone: Phone, files: frozenset[str]) -> Hop:
    return Hop(phone.name, str(phone.address), phone.ssh_port, files)


def _failed(outcome: Outcome[Any]) -> Outcome[int]:
    return Outcome(
        outcome.phone,
        outcome.status,
        outcome.seconds,
        phase=outcome.phase,
        error=outcome.error,
        code=outcome.code,
        remedy=outcome.remedy,
    )


def _answers(stdout: str) -> dict[str, dict[str, Any]]:
    """By phone. Phones are not trusted to speak JSON."""
    found: dict[str, dict[str, Any]] = {}
    for line in stdout.splitlines():
        try:
            told = json.loads(line)
            phone, error = str(told["phone"]), told["error"]
            found[phone] = {"error": error, "code": told.get("code"), "file": told.get("damaged")}
        except (ValueError, KeyError, TypeError):
            continue
    return found
