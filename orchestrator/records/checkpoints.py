"""A run's checkpoints, brought from its head phone into the run's directory on this computer."""

from __future__ import annotations

import binascii
import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import agent
from orchestrator.records.events import Event
from orchestrator.text import one_line
from phone_agent.contract import layout

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection
    from phone_agent.contract.schema import RunSpec

NAME = re.compile(r"checkpoint-\d{8,}\.safetensors")
SHA256 = re.compile(r"[0-9a-f]{64}")
LARGEST = 1 << 36  # what a phone says of itself is not taken for granted
COPIES, PADDING, DESCRIPTION = 8, 64, 64 << 20  # more than checkpoints have: of all numbers; numbers a tensor; bytes
_SILENCE_S = 30.0
_VERIFY_S = 120.0  # a phone reads its checkpoint to its end


class FetchError(ClusterctlError):
    """A checkpoint that did not arrive; the run itself is none the worse."""


@dataclass(frozen=True)
class Told:
    """A checkpoint as the run's events tell it."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, event: Event) -> Told | None:
        name, size, sha256 = (event.fields.get(key) for key in ("file", "bytes", "sha256"))
        if event.kind != "checkpoint" or not (isinstance(name, str) and isinstance(sha256, str)):
            return None
        if not (NAME.fullmatch(name) and SHA256.fullmatch(sha256) and type(size) is int and 0 < size <= LARGEST):
            return None
        return cls(name, size, sha256)

    @property
    def step(self) -> int:
        return int(self.name.removeprefix("checkpoint-").removesuffix(".safetensors"))


def newest(directory: Path) -> Path | None:
    """The run's last checkpoint on this computer."""
    return max(directory.glob(layout.CHECKPOINTS), default=None, key=lambda path: path.name)


def largest(spec: RunSpec, directory: Path) -> int:
    """Bytes a checkpoint of this run may have: its network's numbers, what an optimizer remembers of them, words."""
    from phone_agent.api import models
    from phone_agent.contract.errors import AgentError

    name = f"{directory / spec.model_file}:{spec.model}" if spec.model_file else spec.model
    try:
        graph = models.build(name, spec.data.classes, spec.data.input_shape)
    except AgentError:  # a network that this release does not have, or whose file is gone
        return LARGEST
    tensors = [each for node in graph.nodes for each in (*node.parameters, *node.statistics)]
    return min(LARGEST, 4 * COPIES * sum(each.size + PADDING for each in tensors) + DESCRIPTION)


@dataclass(frozen=True)
class Found:
    """The newest whole one there is."""

    path: Path
    step: int
    damaged: tuple[str, ...] = ()  # newer ones, where they are


def find(fleet: Fleet, run_id: str, directory: Path) -> Found | None:
    """Here, or on any phone that has a newer one, which is then brought here."""
    damaged: list[str] = []
    here = _newest_here(directory, damaged)
    outcomes = fleet.map(lambda phone: agent.call(phone, "checkpoints", run_id, timeout=_VERIFY_S))
    offered = []
    for outcome in outcomes:
        answer = outcome.value if isinstance(outcome.value, dict) else {}
        bad = [one_line(str(name), 80) for name in answer.get("damaged") or []]
        damaged += [f"{name} on {outcome.phone.name} ({outcome.phone.where})" for name in bad]
        told = Told.of(Event("checkpoint", 0.0, fields=answer.get("newest") or {}))
        if told is not None and (here is None or told.step > here.step):
            offered.append((told, outcome.phone))
    for told, phone in sorted(offered, key=lambda each: -each[0].step):
        try:
            return Found(fetch(fleet.connection(phone), run_id, told, directory), told.step, tuple(damaged))
        except (FetchError, PhoneError) as error:
            damaged.append(f"{told.name} on {phone.name} ({phone.where}): {error.message}")
    return replace(here, damaged=tuple(damaged)) if here else None


def _newest_here(directory: Path, damaged: list[str]) -> Found | None:
    from phone_agent.api.weights import read_checkpoint
    from phone_agent.contract.errors import AgentError

    for path in sorted(directory.glob(layout.CHECKPOINTS), reverse=True):
        try:
            return Found(path, read_checkpoint(path).about.step)
        except AgentError:
            damaged.append(f"{path.name} on this computer")
    return None


def fetch(connection: PhoneConnection, run_id: str, told: Told, directory: Path) -> Path:
    """Verified, and in place of older ones. Travels only if it is not there already."""
    path = directory / told.name
    if not _is(path, told):
        if shutil.disk_usage(directory).free < told.size:
            raise FetchError(f"no room for {told.name} in {directory}", remedy=f"free {told.size / 1e6:.0f} MB there")
        _receive(connection, run_id, told, path)
    for older in directory.glob(layout.CHECKPOINTS):
        if older.name < told.name:
            older.unlink()
    return path


def remove_from_phone(connection: PhoneConnection, run_id: str) -> None:
    """A phone's storage is small, and what is here need not be there."""
    connection.script('rm -f -- "$1"/checkpoint-*.safetensors "$1"/checkpoint-*.json', str(layout.run_dir(run_id)))


def _receive(connection: PhoneConnection, run_id: str, told: Told, path: Path) -> None:
    remote = layout.run_dir(run_id) / told.name
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            digest = _copy(connection, str(remote), told, file)
        except BaseException:
            Path(file.name).unlink()
            raise
    if digest != told.sha256:
        Path(file.name).unlink()
        raise FetchError(f"{told.name} arrived damaged (its sha256 is not the recorded one)", remedy=_again(run_id))
    Path(file.name).replace(path)


def _copy(connection: PhoneConnection, remote: str, told: Told, file: IO[bytes]) -> str:
    """Lines of base64, because lines are what a stream from a phone is made of and bounded by."""
    digest, size = hashlib.sha256(), 0
    try:
        with connection.open_stream(["base64", "-w", "8192", "--", remote], silence=_SILENCE_S) as stream:
            for line in stream:
                piece = binascii.a2b_base64(line, strict_mode=True)
                size += len(piece)
                if size > told.size:
                    break
                digest.update(piece)
                file.write(piece)
    except binascii.Error:
        return ""
    except PhoneError as error:
        raise FetchError(f"{told.name} did not arrive: {error.message}", remedy="clusterctl attach") from None
    if stream.rc:
        raise FetchError(f"{told.name} did not arrive: {one_line(stream.stderr.strip())}", remedy="clusterctl attach")
    return digest.hexdigest() if size == told.size else ""


def _is(path: Path, told: Told) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == told.sha256
    except OSError:
        return False


def _again(run_id: str) -> str:
    return f"clusterctl attach {run_id}"
