"""Push datasets to phones: one stream per switch, forwarded from phone to phone (phone_agent.data.receive).

Only missing or corrupt files are sent, so an interrupted push continues where it stopped. When a phone fails, those
behind it in its chain fail too; they are retried in another round with the failed phone last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.data.store import StoredDataset
from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.fleet.copy import content
from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.inventory.model import Phone
from phone_agent.contract.dataset_delivery import Delivery, Hop
from phone_agent.contract.dataset_manifest import DatasetManifest, ShardFile, Span, shards_with
from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import DatasetFiles, DeliveryReply
from phone_agent.contract.sizes import format_size

REPLICATE_LIMIT = 0.25  # of the free space of a phone; a larger dataset is sharded across phones
SPARE_BYTES = 200_000_000  # to keep free on a phone
ATTEMPTS = 2
MIN_BYTES_PER_S = 1_000_000  # a slower push times out
VERIFY_TIMEOUT = 3600.0

OnProgress = Callable[[int, int, Sequence[Phone]], None]  # bytes sent, total bytes, phones still waiting


class CorruptShardError(ClusterctlError):
    """A shard on this computer is corrupt, so every phone would reject it. `phones`: the phones that need it."""

    def __init__(self, stored: StoredDataset, file: ShardFile, phones: Iterable[str]) -> None:
        self.phones = tuple(phones)
        message = f"{stored.directory / file.name} is corrupt on this computer; phones reject it"
        super().__init__(message, remedy=f"clusterctl data remove {stored.name}, then add it again")


@dataclass(frozen=True)
class PushResult:
    """One outcome per phone; its value is the number of bytes sent to it."""

    outcomes: Outcomes[int]
    whole: bool
    sent_bytes: int  # by this computer
    seconds: float


def required_files(manifest: DatasetManifest, spans: Sequence[Span], *, whole: bool) -> frozenset[str]:
    """All test shards, and the training shards of these spans (or all of them)."""
    train = manifest.train if whole else shards_with(manifest.train, spans)
    return frozenset(file.name for file in (*train, *manifest.test))


def should_replicate(manifest: DatasetManifest, held: Sequence[DatasetFiles], spans: Sequence[Sequence[Span]]) -> bool:
    """Replicate or shard? As the phones already have it; otherwise by free space."""
    everything = required_files(manifest, (), whole=True)
    complete = [not each.missing(manifest, everything) for each in held]
    if all(complete):
        return True
    shares = (required_files(manifest, each, whole=False) for each in spans)
    dealt = all(not each.missing(manifest, share) for each, share in zip(held, shares, strict=True))
    return not (dealt and not any(complete)) and fits_replicated(manifest, held)


def fits_replicated(manifest: DatasetManifest, held: Sequence[DatasetFiles]) -> bool:
    sizes = {file.name: file.bytes for file in manifest.files}
    return all(
        manifest.bytes <= REPLICATE_LIMIT * (each.free_bytes + sum(sizes.get(name, 0) for name in each.files))
        for each in held
    )


@dataclass
class Push:
    """`spans`: samples of each phone if the dataset is sharded; `whole`: replicate, shard, or None for automatic."""

    fleet: Fleet
    stored: StoredDataset
    phones: Sequence[Phone]
    spans: Sequence[Sequence[Span]]
    whole: bool | None = None
    verify: bool = False  # let phones verify the checksums of their files
    on_progress: OnProgress = lambda _sent, _total, _left: None
    _done: dict[Phone, Outcome[int]] = field(default_factory=dict)
    _failed: dict[Phone, int] = field(default_factory=dict)
    _sent_to: dict[Phone, int] = field(default_factory=dict)
    _corrupt: set[ShardFile] = field(default_factory=set)  # on this computer
    _sent: int = 0
    _total: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> PushResult:
        started = time.monotonic()
        pending = list(self.phones)
        held = self._query(pending, verify=self.verify)
        spans = dict(zip(self.phones, self.spans, strict=True))
        whole = self.whole
        if whole is None:
            whole = should_replicate(self._manifest, list(held.values()), [spans[phone] for phone in held])
        required = {phone: required_files(self._manifest, spans[phone], whole=whole) for phone in self.phones}
        while held:
            missing_files = self._missing_files(held, required)
            if not missing_files:
                break
            self._round(missing_files)
            held = self._query([phone for phone in missing_files if phone not in self._done], verify=False)
        outcomes = Outcomes(tuple(self._done[phone] for phone in self.phones))
        return PushResult(outcomes, whole, self._sent, time.monotonic() - started)

    @property
    def _manifest(self) -> DatasetManifest:
        return self.stored.manifest

    def _query(self, phones: Sequence[Phone], *, verify: bool) -> dict[Phone, DatasetFiles]:
        """The files of each phone that replies; the others are recorded as failed."""
        command = ("data-list", self.stored.name, *(["--verify"] if verify else []))
        outcomes = self.fleet.map(
            lambda phone: agent.call(phone, DatasetFiles, *command, timeout=VERIFY_TIMEOUT), phones
        )
        for outcome in outcomes.failures:
            self._done[outcome.phone] = _without_value(outcome)
        return dict(outcomes.values())

    def _missing_files(
        self, held: Mapping[Phone, DatasetFiles], required: Mapping[Phone, frozenset[str]]
    ) -> dict[Phone, frozenset[str]]:
        missing_files: dict[Phone, frozenset[str]] = {}
        for phone, has in held.items():
            missing = has.missing(self._manifest, required[phone])
            size = self._size(missing)
            if not missing and has.digest == self._manifest.digest:
                self._finish(phone)
            elif phone in self._sent_to:
                self._fail(phone, "the files that were sent have disappeared", ErrorCode.DATA_MISSING, final=True)
            elif size + SPARE_BYTES > has.free_bytes:
                room = f"{format_size(size)} missing, only {format_size(has.free_bytes)} free"
                self._fail(phone, room, ErrorCode.DISK_FULL, final=True)
            else:
                missing_files[phone] = missing
        return missing_files

    def _round(self, missing_files: Mapping[Phone, frozenset[str]]) -> None:
        """One chain per switch, all in parallel."""
        chains: dict[str, list[Phone]] = {}
        for phone in sorted(missing_files, key=lambda phone: self._failed.get(phone, 0)):
            chains.setdefault(phone.switch, []).append(phone)
        deliveries = {
            chain[0]: Delivery(self._manifest, tuple(_stop(phone, missing_files[phone]) for phone in chain))
            for chain in chains.values()
        }
        with self._lock:
            self._total = self._sent + sum(file.bytes for each in deliveries.values() for file in each.files)
        self._report_progress()
        outcomes = self.fleet.map(
            lambda connection: self._deliver(connection, deliveries[connection.phone]), list(deliveries)
        )
        if self._corrupt:
            rotten = min(self._corrupt, key=lambda file: file.name)
            affected = [phone.name for phone, files in missing_files.items() if rotten.name in files]
            raise CorruptShardError(self.stored, rotten, affected)
        for outcome in outcomes.failures:
            if outcome.phone not in self._done:
                self._fail(outcome.phone, outcome.error or "", outcome.code or ErrorCode.UNKNOWN, outcome=outcome)

    def _deliver(self, connection: PhoneConnection, delivery: Delivery) -> None:
        size = sum(file.bytes for file in delivery.files)
        result = connection.run(
            agent.argv("data-receive"),
            stdin=self._stream(delivery),
            env=agent.ENVIRONMENT,
            timeout=600 + size / MIN_BYTES_PER_S,
        )
        replies = _parse_replies(result.stdout)
        if delivery.route[0].phone not in replies:
            code, message = agent.reported(result.stderr, result.rc)
            raise PhoneError(f"data-receive: {message[-300:]}", code=code, remedy="clusterctl provision")
        self._evaluate_replies(delivery.route, replies)

    def _evaluate_replies(self, route: Sequence[Hop], replies: Mapping[str, DeliveryReply]) -> None:
        """Only the first failure of a chain counts; it may have caused those behind it, which are retried."""
        by_name = {phone.name: phone for phone in self.phones}
        broken = False
        for stop in route:
            answer = replies.get(stop.phone)
            if answer and not answer.error:
                self._sent_to[by_name[stop.phone]] = self._size(stop.files)
            elif answer and not broken:
                self._fail(by_name[stop.phone], answer.error or "", answer.code)
                self._verify_by_name(answer.damaged)
            broken = broken or not answer or bool(answer.error)

    def _verify_by_name(self, name: str | None) -> None:
        """A shard that arrived corrupt may be corrupt here. Verifying all shards before sending would take too long."""
        for file in self._manifest.files:
            if file.name == name:
                self._verify_local(file)

    def _verify_local(self, file: ShardFile) -> None:
        if not self.stored.is_intact(file):
            self._corrupt.add(file)

    def _stream(self, delivery: Delivery) -> Iterator[bytes]:
        yield delivery.line()
        for file in delivery.files:
            yield from self._pieces(file)
            self._report_progress()

    def _pieces(self, file: ShardFile) -> Iterator[bytes]:
        try:
            for piece in content(self.stored.directory / file.name, file.bytes):
                with self._lock:
                    self._sent += len(piece)
                yield piece
        except OSError:
            self._verify_local(file)
            raise

    def _size(self, names: frozenset[str]) -> int:
        return sum(file.bytes for file in self._manifest.files if file.name in names)

    def _finish(self, phone: Phone) -> None:
        self._done[phone] = Outcome(phone, Status.OK, 0.0, value=self._sent_to.get(phone, 0))

    def _fail(
        self, phone: Phone, error: str, code: ErrorCode, *, final: bool = False, outcome: Outcome[Any] | None = None
    ) -> None:
        self._failed[phone] = self._failed.get(phone, 0) + 1
        if final or self._failed[phone] >= ATTEMPTS:
            status = outcome.status if outcome else Status.FAILED
            remedy = (outcome and outcome.remedy) or f"clusterctl status --limit {phone.name}"
            self._done[phone] = Outcome(phone, status, 0.0, phase=Phase.COPY, error=error, code=code, remedy=remedy)

    def _report_progress(self) -> None:
        left = [phone for phone in self.phones if phone not in self._done]
        self.on_progress(self._sent, self._total, left)


def _stop(phone: Phone, files: frozenset[str]) -> Hop:
    return Hop(phone.name, str(phone.address), phone.ssh_port, files)


def _without_value(outcome: Outcome[Any]) -> Outcome[int]:
    return replace(outcome, value=None)


def _parse_replies(stdout: str) -> dict[str, DeliveryReply]:
    """Replies by phone; anything else is ignored."""
    found: dict[str, DeliveryReply] = {}
    for line in stdout.splitlines():
        with suppress(DecodeError):
            reply = decode_json(DeliveryReply, line)
            found[reply.phone] = reply
    return found
