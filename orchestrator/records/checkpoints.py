"""Checkpoints of a run: fetch them from its phones into the directory of the run on this computer, and find the newest.

Whatever a phone says about a checkpoint is checked before it is used.
"""

from __future__ import annotations

import binascii
import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import Event, Progress
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.files import atomic_write

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from orchestrator.records.record import RunRecord, RunStore
    from phone_agent.contract.schema import RunSpec

NAME = re.compile(r"checkpoint-\d{8,}\.safetensors")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_BYTES = 1 << 36  # of any checkpoint
# Generous bounds for a known network: copies of every parameter, elements of padding per tensor, header
_MAX_COPIES, _PADDING, _HEADER_BYTES = 8, 64, 64 << 20
_SILENCE_S = 30.0
_VERIFY_S = 120.0  # a phone reads its checkpoint to the end

Connect = Callable[[], "PhoneConnection"]


class FetchError(ClusterctlError):
    """A checkpoint did not arrive. The run itself is not affected."""


@dataclass(frozen=True)
class CheckpointInfo:
    """Metadata of a checkpoint, as the events of the run announce it."""

    name: str
    size: int
    sha256: str

    @classmethod
    def from_event(cls, event: Event) -> CheckpointInfo | None:
        """None if the metadata is implausible."""
        name, size, sha256 = (event.fields.get(key) for key in ("file", "bytes", "sha256"))
        if event.kind != "checkpoint" or not (isinstance(name, str) and isinstance(sha256, str)):
            return None
        if not (NAME.fullmatch(name) and SHA256.fullmatch(sha256) and type(size) is int and 0 < size <= MAX_BYTES):
            return None
        return cls(name, size, sha256)

    @property
    def step(self) -> int:
        return int(self.name.removeprefix("checkpoint-").removesuffix(".safetensors"))


@dataclass(frozen=True)
class FoundCheckpoint:
    """The newest intact checkpoint of a run, on this computer."""

    path: Path
    step: int
    damaged: tuple[str, ...] = ()  # newer ones, and where they are


# ---------------------------------------------------------------------------------------------------------- find


def newest_local(directory: Path) -> Path | None:
    """The newest checkpoint of the run on this computer."""
    return max(directory.glob(layout.CHECKPOINTS), default=None, key=lambda path: path.name)


def find_newest(fleet: Fleet, run_id: str, directory: Path) -> FoundCheckpoint | None:
    """The newest intact checkpoint on this computer or on any phone; fetched if it is on a phone."""
    damaged: list[str] = []
    local = _newest_intact_local(directory, damaged)
    outcomes = fleet.map(lambda phone: agent.call(phone, "checkpoints", run_id, timeout=_VERIFY_S))
    newer = []
    for outcome in outcomes:
        answer = outcome.value if isinstance(outcome.value, dict) else {}
        names = [one_line(str(name), 80) for name in answer.get("damaged") or []]
        damaged += [f"{name} on {outcome.phone.name} ({outcome.phone.where})" for name in names]
        info = CheckpointInfo.from_event(Event("checkpoint", 0.0, fields=answer.get("newest") or {}))
        if info is not None and (local is None or info.step > local.step):
            newer.append((info, outcome.phone))
    for info, phone in sorted(newer, key=lambda each: -each[0].step):
        try:
            path = fetch(fleet.connection(phone), run_id, info, directory)
        except (FetchError, PhoneError) as error:
            damaged.append(f"{info.name} on {phone.name} ({phone.where}): {error.message}")
        else:
            return FoundCheckpoint(path, info.step, tuple(damaged))
    return replace(local, damaged=tuple(damaged)) if local else None


def _newest_intact_local(directory: Path, damaged: list[str]) -> FoundCheckpoint | None:
    from phone_agent.api.weights import read_checkpoint
    from phone_agent.contract.errors import AgentError

    for path in sorted(directory.glob(layout.CHECKPOINTS), reverse=True):
        try:
            return FoundCheckpoint(path, read_checkpoint(path).info.step)
        except AgentError:
            damaged.append(f"{path.name} on this computer")
    return None


# ---------------------------------------------------------------------------------------------------------- fetch


def fetch_last(store: RunStore, run_id: str, progress: Progress, connect: Connect) -> Path | None:
    """Fetch the last checkpoint that the run announced; None if it announced none."""
    if progress.checkpoint is None:
        return None
    return fetch_announced(store, run_id, progress.checkpoint, connect)


def fetch_announced(store: RunStore, run_id: str, event: Event, connect: Connect) -> Path:
    directory, info = store.directory(run_id), CheckpointInfo.from_event(event)
    if info is None or info.size > max_bytes(store.spec(run_id), directory):
        source = f" from {event.phone}" if event.phone else ""
        message = f"implausible checkpoint metadata{source}"
        raise FetchError(message, remedy=f"clusterctl collect-logs {run_id}")
    return fetch(connect(), run_id, info, directory)


def max_bytes(spec: RunSpec, directory: Path) -> int:
    """How large a checkpoint of this run may be: its parameters, the state of an optimizer, and a header."""
    from phone_agent.api import models
    from phone_agent.contract.errors import AgentError

    name = f"{directory / spec.model_file}:{spec.model}" if spec.model_file else spec.model
    try:
        graph = models.build(name, spec.data.classes, spec.data.input_shape)
    except AgentError:  # a network that this release does not have, or whose file is gone
        return MAX_BYTES
    tensors = [each for node in graph.nodes for each in (*node.parameters, *node.statistics)]
    return min(MAX_BYTES, 4 * _MAX_COPIES * sum(each.size + _PADDING for each in tensors) + _HEADER_BYTES)


def fetch(connection: PhoneConnection, run_id: str, info: CheckpointInfo, directory: Path) -> Path:
    """Fetch a checkpoint unless it is there already, verify it, and delete older ones."""
    path = directory / info.name
    if not _is_intact(path, info):
        if shutil.disk_usage(directory).free < info.size:
            raise FetchError(
                f"no room for {info.name} in {directory}", remedy=f"free {info.size / 1e6:.0f} MB on this computer"
            )
        _receive(connection, run_id, info, path)
    for older in directory.glob(layout.CHECKPOINTS):
        if older.name < info.name:
            older.unlink()
    return path


def _receive(connection: PhoneConnection, run_id: str, info: CheckpointInfo, path: Path) -> None:
    remote = layout.run_dir(run_id) / info.name
    with atomic_write(path) as file:
        if _copy(connection, str(remote), info, file) != info.sha256:
            message = f"{info.name} arrived damaged (its sha256 differs from the announced one)"
            raise FetchError(message, remedy=f"clusterctl attach {run_id}")


def _copy(connection: PhoneConnection, remote: str, info: CheckpointInfo, file: IO[bytes]) -> str:
    """Return the sha256 of what arrived; empty if its size is wrong. Travels as lines of base64, because streams from a
    phone consist of lines of bounded length."""
    digest, size = hashlib.sha256(), 0
    try:
        with connection.open_stream(["base64", "-w", "8192", "--", remote], silence=_SILENCE_S) as stream:
            for line in stream:
                piece = binascii.a2b_base64(line, strict_mode=True)
                size += len(piece)
                if size > info.size:
                    break
                digest.update(piece)
                file.write(piece)
    except binascii.Error:
        return ""
    except PhoneError as error:
        raise FetchError(f"{info.name} did not arrive: {error.message}", remedy="clusterctl attach") from None
    if stream.rc:
        raise FetchError(f"{info.name} did not arrive: {one_line(stream.stderr.strip())}", remedy="clusterctl attach")
    return digest.hexdigest() if size == info.size else ""


def _is_intact(path: Path, info: CheckpointInfo) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == info.sha256
    except OSError:
        return False


# --------------------------------------------------------------------------------------------------------- remove


def remove_from_phones(store: RunStore, record: RunRecord, fleet: Fleet) -> None:
    """Delete the checkpoints of a run, once this computer has the last one, from the phones that wrote them in any
    attempt. Phones that do not answer keep theirs."""
    from phone_agent.api.weights import checkpoint_ranks

    specs = [store.spec(record.run_id, attempt) for attempt in range(record.attempt + 1)]
    writers = {
        spec.ranks[rank].phone for spec in specs for rank in checkpoint_ranks([each.switch for each in spec.ranks])
    }
    phones = [phone for phone in fleet.phones if phone.name in writers]
    fleet.map(lambda connection: remove_from_phone(connection, record.run_id), phones)


def remove_from_phone(connection: PhoneConnection, run_id: str) -> None:
    connection.script('rm -f -- "$1"/checkpoint-*.safetensors "$1"/checkpoint-*.json', str(layout.run_dir(run_id)))
