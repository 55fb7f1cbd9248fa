"""Records of runs on this computer: one directory per run, in files that a person can read.

<state>/runs/<run id>/run.json         the RunSpec, as every phone has it
                      record.json      state and progress: RunRecord
                      events.jsonl     events of the head phone, as far as they have been followed
                      attempt-N/       run.json and events.jsonl of the attempts after the first
                      incidents.jsonl  failures of phones, and how the run recovered from them
                      activity.json    what its supervisor is doing at the moment
                      stop             exists once the run is to be stopped
                      min_phones       replaces that of the record: `attach --min-phones`
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.paths import ClusterState
from orchestrator.records.events import FINAL_STATES, Progress
from phone_agent.contract import layout
from phone_agent.contract.files import read_int, sync_directory, write_bytes
from phone_agent.contract.schema import RunSpec, SchemaError

RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9_.-]{1,40}-[0-9a-f]{4}")

_STOP_REQUEST = "stop"  # a file in the directory of the run
_DISCARD = b"discard"  # its content if the newest step need not be saved
_MIN_PHONES = "min_phones"
_UNFINISHED = ".new-"  # prefix of the directory of a run while it is being written


@dataclass(frozen=True)
class Failure:
    """Why a run failed, or why it is interrupted."""

    message: str
    cause: str | None = None  # a Cause
    phone: str | None = None  # the one at fault, and its port
    switch: str | None = None
    port: int | None = None
    log_tail: tuple[str, ...] = ()  # of mpirun
    permanent: bool = False  # the work is at fault, not a phone: another attempt would fail as well

    @property
    def headline(self) -> str:
        return f"{self.phone} ({self.switch}:{self.port}): {self.message}" if self.phone else self.message


@dataclass(frozen=True)
class RunRecord:
    run_id: str
    model: str
    head: str
    phones: tuple[str, ...]
    steps: int
    created: float
    state: str = "staging"  # then starting, running, recovering, interrupted, and one of FINAL_STATES
    step: int = 0
    loss: float | None = None
    images_per_s: float | None = None
    ended: float | None = None
    failure: Failure | None = None
    attempt: int = 0  # the newest; `head` and `phones` belong to it
    requested: tuple[str, ...] = ()  # the phones it was launched with; lost ones may rejoin
    spares: tuple[str, ...] = ()  # replace lost phones
    min_phones: int = 1
    max_restarts: int = 0
    restarts: int = 0  # after failures
    parent: str | None = None  # the run whose checkpoint it resumed from
    inventory: str = ""  # the file that lists its phones

    @property
    def over(self) -> bool:
        return self.state in FINAL_STATES

    def with_progress(self, progress: Progress) -> RunRecord:
        """State and figures by the events so far. A recorded final state stays: events may be older than it. A failed
        attempt is not the end of a run: its supervisor decides."""
        state = "interrupted" if progress.state in {"failed", "lost", "yielded"} else progress.state
        return replace(
            self.with_figures(progress),
            state=self.state if self.over else state,
            ended=progress.last_time if (self.over or state in FINAL_STATES) and self.ended is None else self.ended,
        )

    def with_figures(self, progress: Progress) -> RunRecord:
        return replace(
            self,
            step=progress.step or self.step,
            loss=progress.loss if progress.loss is not None else self.loss,
            images_per_s=progress.images_per_s or self.images_per_s,
        )


class RunStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, spec: RunSpec, inventory: Path | None = None) -> RunRecord:
        """Atomic: a process that is killed in here leaves no half-written run."""
        names = tuple(rank.phone for rank in spec.ranks)
        record = RunRecord(
            spec.run_id,
            spec.network,
            names[0],
            names,
            spec.steps,
            spec.created,
            step=spec.resume.step,
            requested=names,
            spares=tuple(name for name in spec.recovery.spares if name not in names),
            min_phones=spec.recovery.min_phones or len(names) // 2 + 1,
            max_restarts=spec.recovery.max_restarts,
            parent=spec.parent or None,
            inventory=str(inventory.absolute()) if inventory else "",
        )
        fresh = self._fresh_directory()
        write_bytes(fresh / "run.json", spec.to_json().encode())
        _write(fresh, record)
        fresh.rename(self.directory(spec.run_id))
        sync_directory(self.root)
        return record

    def _fresh_directory(self) -> Path:
        """Also deletes half-written directories: only one launch is under way at a time."""
        for left in self.root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.root))

    def begin_attempt(self, record: RunRecord, spec: RunSpec) -> RunRecord:
        """Record the attempt before any phone is asked, so that its number is never used twice."""
        directory = self.attempt_directory(spec.run_id, spec.attempt)
        directory.mkdir(exist_ok=True)
        write_bytes(directory / "run.json", spec.to_json().encode())
        sync_directory(directory.parent)
        names = tuple(rank.phone for rank in spec.ranks)
        begun = replace(
            record,
            attempt=spec.attempt,
            head=names[0],
            phones=names,
            state="starting",
            step=spec.resume.step,
            failure=None,
        )
        self.save(begun)
        return begun

    def save(self, record: RunRecord) -> None:
        _write(self.directory(record.run_id), record)

    def directory(self, run_id: str) -> Path:
        return self.root / run_id

    def attempt_directory(self, run_id: str, attempt: int) -> Path:
        return self.directory(run_id) / layout.attempt_name(attempt) if attempt else self.directory(run_id)

    def events_file(self, run_id: str, attempt: int = 0) -> Path:
        return self.attempt_directory(run_id, attempt) / "events.jsonl"

    def incidents_file(self, run_id: str) -> Path:
        return self.directory(run_id) / "incidents.jsonl"

    def spec(self, run_id: str, attempt: int = 0) -> RunSpec:
        path = self.attempt_directory(run_id, attempt) / "run.json"
        try:
            return RunSpec.from_json(path.read_text(encoding="utf-8"))
        except (OSError, SchemaError) as error:
            raise UsageError(f"damaged record of run {run_id}: {error}") from None

    def read(self, run_id: str) -> RunRecord:
        record = _read(self.directory(run_id) / "record.json")
        if record is None:
            raise UsageError(f"damaged or missing record of run {run_id}", remedy="clusterctl runs")
        return record

    def run_ids(self) -> list[str]:
        return [path.name for path in self.root.glob("*/") if not path.name.startswith(_UNFINISHED)]

    def request_stop(self, run_id: str, *, discard: bool = False) -> None:
        """From now on, no supervisor restarts the run. `discard`: without saving its newest step."""
        write_bytes(self.directory(run_id) / _STOP_REQUEST, _DISCARD if discard else b"")

    def stop_requested(self, run_id: str) -> bool:
        return (self.directory(run_id) / _STOP_REQUEST).exists()

    def discard_requested(self, run_id: str) -> bool:
        return self.stop_requested(run_id) and (self.directory(run_id) / _STOP_REQUEST).read_bytes() == _DISCARD

    def set_min_phones(self, run_id: str, number: int) -> None:
        """Changes the record from now on. In a file of its own: the record itself belongs to the supervisor."""
        write_bytes(self.directory(run_id) / _MIN_PHONES, str(number).encode())

    def all(self) -> tuple[RunRecord, ...]:
        """Oldest first, without damaged records."""
        return tuple(sorted(self._readable(), key=lambda record: (record.created, record.run_id)))

    def claims(self) -> dict[str, RunRecord]:
        """The unfinished run that each phone belongs to. A run that waits for phones may have its state only in the
        memory of these phones."""
        return {name: record for record in self.all() if not record.over for name in record.phones}

    def find(self, prefix: str | None) -> RunRecord:
        """By a unique prefix of its id; the newest run if None."""
        return self.read(_find_id(prefix, [record.run_id for record in self.all()]))

    def _readable(self) -> Iterator[RunRecord]:
        for path in self.root.glob("*/record.json"):
            record = _read(path)
            if record is not None and record.run_id == path.parent.name:
                yield record


def _write(directory: Path, record: RunRecord) -> None:
    write_bytes(directory / "record.json", json.dumps(asdict(record), indent=2).encode())


def _read(path: Path) -> RunRecord | None:
    known = {field.name for field in fields(RunRecord)}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        record = RunRecord(**{key: value for key, value in raw.items() if key in known})
        failure = _read_failure(raw.get("failure"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return replace(
        record,
        min_phones=read_int(path.with_name(_MIN_PHONES)) or record.min_phones,
        failure=failure,
        phones=tuple(record.phones),
        requested=tuple(record.requested or record.phones),
        spares=tuple(record.spares),
    )


def _read_failure(raw: dict[str, Any] | None) -> Failure | None:
    return Failure(**{**raw, "log_tail": tuple(raw["log_tail"])}) if raw else None


@dataclass(frozen=True)
class StoredRun:
    """A run of any cluster."""

    state: ClusterState
    record: RunRecord

    @property
    def store(self) -> RunStore:
        return RunStore(self.state.runs)


def stored_runs(clusters: Sequence[ClusterState]) -> list[StoredRun]:
    """Oldest first, without damaged records."""
    found = [StoredRun(state, record) for state in clusters for record in RunStore(state.runs).all()]
    return sorted(found, key=lambda run: (run.record.created, run.record.run_id))


def find_run(clusters: Sequence[ClusterState], prefix: str | None) -> StoredRun:
    """By a prefix of its id that is unique among these clusters; the newest run if None."""
    runs = {run.record.run_id: run for run in stored_runs(clusters)}
    return runs[_find_id(prefix, list(runs))]


def _find_id(prefix: str | None, ids: Sequence[str]) -> str:
    """`ids`: oldest first."""
    if not ids:
        raise UsageError("there are no runs yet", remedy="clusterctl launch")
    if prefix is None:
        return ids[-1]
    matches = [run_id for run_id in ids if run_id.startswith(prefix)]
    if len(matches) != 1:
        raise _no_single_match(prefix, matches or ids, bool(matches))
    return matches[0]


def _no_single_match(prefix: str, ids: Sequence[str], several: bool) -> UsageError:  # noqa: FBT001 - two wordings
    if several:
        return UsageError(
            f"'{prefix}' matches {len(ids)} runs: {', '.join(ids[-5:])}", remedy="use a longer prefix of the id"
        )
    close = difflib.get_close_matches(prefix, ids, n=1, cutoff=0.4) or ids[-1:]
    return UsageError(f"no run '{prefix}'; did you mean {close[0]}?", remedy="clusterctl runs")
