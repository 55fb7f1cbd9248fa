"""Checkpoints of a run: fetch them from its phones into the directory of the run on this computer, and find the newest.

Whatever a phone says about a checkpoint is checked before it is used.
"""

from __future__ import annotations

import binascii
import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import CheckpointEvent, Progress
from orchestrator.text import one_line
from phone_agent.contract import layout
from phone_agent.contract.files import atomic_write, sync_directory
from phone_agent.contract.replies import CheckpointInfo, Checkpoints

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from orchestrator.records.record import RunRecord, RunStore
    from phone_agent.contract.schema import RunSpec

KEEP_NEWEST = 2  # on this computer
MAX_BYTES = 1 << 36  # of any checkpoint
# Generous bounds for a known network: copies of every parameter, elements of padding per tensor, header
_MAX_COPIES, _PADDING, _HEADER_BYTES = 8, 64, 64 << 20
_SILENCE_S, _START_S = 30.0, 60.0
_MIN_BYTES_PER_S = 128 * 1024  # a slower phone has a problem: with all phones sending, each has eight times as much
_VERIFY_S = 120.0  # a phone reads its checkpoint to the end

Connect = Callable[[], "PhoneConnection"]


class FetchError(ClusterctlError):
    """A checkpoint did not arrive. The run itself is not affected."""


class BadCheckpointError(FetchError):
    """What the phone has is no intact checkpoint of the run."""


@dataclass(frozen=True)
class FoundCheckpoint:
    """An intact checkpoint on this computer."""

    path: Path
    step: int


@dataclass(frozen=True)
class CheckpointSearch:
    newest: FoundCheckpoint | None = None
    damaged: tuple[str, ...] = ()  # newer ones, and where they are
    unread: Mapping[str, str] = field(default_factory=dict)  # phones whose checkpoints are unknown, and why


# ---------------------------------------------------------------------------------------------------------- find


def newest_local(directory: Path) -> Path | None:
    """The newest checkpoint of the run on this computer."""
    return max(directory.glob(layout.CHECKPOINTS), default=None, key=layout.checkpoint_step)


def find_newest(fleet: Fleet, spec: RunSpec, directory: Path) -> CheckpointSearch:
    """The newest intact checkpoint on this computer or on any phone; fetched if it is on a phone."""
    damaged: list[str] = []
    local = _newest_intact_local(directory, damaged)
    outcomes = fleet.map(lambda phone: agent.call(phone, Checkpoints, "checkpoints", spec.run_id, timeout=_VERIFY_S))
    unread = {outcome.phone.name: outcome.error or "no reply" for outcome in outcomes.failures}
    newer = []
    for phone, reply in outcomes.values():
        damaged += [f"{name} on {phone.name} ({phone.where})" for name in reply.damaged]
        if reply.newest is not None and (local is None or reply.newest.step > local.step):
            newer.append((reply.newest, phone))
    for info, phone in sorted(newer, key=lambda each: -each[0].step):
        try:
            path = fetch(fleet.connection(phone), spec, info, directory)
        except BadCheckpointError as error:
            damaged.append(f"{info.name} on {phone.name} ({phone.where}): {error.message}")
        except (FetchError, PhoneError) as error:
            unread[phone.name] = error.message
        else:
            return CheckpointSearch(FoundCheckpoint(path, info.step), tuple(damaged), unread)
    return CheckpointSearch(local, tuple(damaged), unread)


def _newest_intact_local(directory: Path, damaged: list[str]) -> FoundCheckpoint | None:
    from phone_agent.api.training import read_checkpoint
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


def fetch_announced(store: RunStore, run_id: str, event: CheckpointEvent, connect: Connect) -> Path:
    return fetch(connect(), store.spec(run_id), event, store.directory(run_id))


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


def fetch(connection: PhoneConnection, spec: RunSpec, info: CheckpointInfo, directory: Path) -> Path:
    """Fetch a checkpoint unless it is there already, verify it, and only then delete older ones. The one before stays:
    no check can tell whether the numbers in a checkpoint are those of the run."""
    if info.step > spec.steps or info.size > max_bytes(spec, directory):
        message = f"implausible checkpoint metadata from {connection.phone.name}: {info.name}, {info.size} bytes"
        raise BadCheckpointError(message, remedy=f"clusterctl collect-logs {spec.run_id}")
    path = directory / info.name
    if not _is_intact(path, info):
        if shutil.disk_usage(directory).free < info.size:
            raise FetchError(
                f"no room for {info.name} in {directory}", remedy=f"free {info.size / 1e6:.0f} MB on this computer"
            )
        _receive(connection, spec.run_id, info, path)
    older = sorted(each for each in directory.glob(layout.CHECKPOINTS) if each.name < info.name)
    for each in older[: 1 - KEEP_NEWEST]:
        each.unlink()
    return path


def _receive(connection: PhoneConnection, run_id: str, info: CheckpointInfo, path: Path) -> None:
    remote = layout.run_dir(run_id) / info.name
    with atomic_write(path) as file:
        if _copy(connection, str(remote), info, file) != info.sha256:
            message = f"{info.name} arrived damaged (its sha256 differs from the announced one)"
            raise BadCheckpointError(message, remedy=f"clusterctl attach {run_id}")
        _check_content(file, run_id, info)


def _check_content(file: BinaryIO, run_id: str, info: CheckpointInfo) -> None:
    """That it is a checkpoint of this run: it replaces older ones."""
    from phone_agent.api.training import read_checkpoint
    from phone_agent.contract import safetensors
    from phone_agent.contract.errors import AgentError

    file.flush()
    file.seek(0)
    try:
        metadata = safetensors.parse_metadata(file)
        read_checkpoint(Path(f"/dev/fd/{file.fileno()}"))  # the file has no name yet
    except AgentError:
        metadata = {}
    if (metadata.get("run_id"), metadata.get("step")) != (run_id, str(info.step)):
        message = f"{info.name} is not a checkpoint of step {info.step} of {run_id}"
        raise BadCheckpointError(message, remedy=f"clusterctl collect-logs {run_id}")


def _copy(connection: PhoneConnection, remote: str, info: CheckpointInfo, file: BinaryIO) -> str:
    """Return the sha256 of what arrived; empty if its size is wrong. Travels as lines of base64, because streams from a
    phone consist of lines of bounded length."""
    digest, size = hashlib.sha256(), 0
    command, timeout = ["base64", "-w", "8192", "--", remote], _START_S + info.size / _MIN_BYTES_PER_S
    try:
        with connection.open_stream(command, silence=_SILENCE_S, timeout=timeout) as stream:
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


# ----------------------------------------------------------------------------------------------- keep and remove


def keep_copy(checkpoint: Path, directory: Path) -> Path:
    """In the directory of a run that resumes from another one: the other run may be deleted."""
    copy = directory / checkpoint.name
    try:
        copy.hardlink_to(checkpoint)
    except OSError:  # on another file system
        with checkpoint.open("rb") as source, atomic_write(copy) as file:
            shutil.copyfileobj(source, file)
    sync_directory(directory)
    return copy


def remove_after(directory: Path, step: int) -> None:
    """Delete checkpoints of later steps than the run resumes from: they are damaged, or belong to steps that are now
    computed again."""
    for path in directory.glob(layout.CHECKPOINTS):
        if layout.checkpoint_step(path) > step:
            path.unlink()


def remove_from_phones(store: RunStore, record: RunRecord, fleet: Fleet) -> None:
    """Delete the checkpoints of a run, once this computer has the last one, from the phones that wrote them in any
    attempt. Phones that do not answer keep theirs."""
    from phone_agent.api.training import checkpoint_ranks

    specs = [store.spec(record.run_id, attempt) for attempt in range(record.attempt + 1)]
    writers = {
        spec.ranks[rank].phone for spec in specs for rank in checkpoint_ranks([each.switch for each in spec.ranks])
    }
    phones = [phone for phone in fleet.phones if phone.name in writers]
    fleet.map(lambda connection: remove_from_phone(connection, record.run_id), phones)


def remove_from_phone(connection: PhoneConnection, run_id: str) -> None:
    connection.script('rm -f -- "$1"/checkpoint-*.safetensors "$1"/checkpoint-*.json', str(layout.run_dir(run_id)))
