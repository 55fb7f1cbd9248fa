"""Checkpoint files in safetensors format: weights under torchvision's names, the optimizer state, the run spec and the
step. The step determines which samples come next.

A run resumed from a file is not bit-identical, because the file lacks the residuals of lossy wire formats, the
directions of PowerSGD, each phone's own running statistics (it has the combined ones), and with local steps the momenta
of all phones but the first.

Rank 0 and a phone on another switch write checkpoints: the state is copied after a step, and a thread writes the copy.
A manifest with size and sha256 lies beside each file. A file without a manifest, or that does not match it, is ignored:
power may have been cut in between.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import layout, safetensors
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import read_json, write_json
from phone_agent.contract.schema import RunSpec, SchemaError
from phone_agent.contract.shards import MAX_CHANNELS, MAX_CLASSES, MAX_SIDE
from phone_agent.data import Dataset
from phone_agent.nn.graph import OPTIMIZER_PREFIX, Graph
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict

SCHEMA = 1
FORMAT = "clusterctl"
KEEP_NEWEST = 2
MANIFEST = ".json"

Array = NDArray[Any]
WriteEvent = Callable[..., object]  # EventLog.write


class CheckpointError(AgentError):
    """A checkpoint that cannot be used. The message names the file."""

    code = ErrorCode.BAD_CHECKPOINT


@dataclass(frozen=True)
class CheckpointMetadata:
    """Metadata of a weights file. Empty for files from other programs."""

    model: str = ""
    classes: int | None = None
    shape: tuple[int, ...] | None = None  # of the network input
    stored: tuple[int, ...] | None = None  # of stored samples, from which the input is cropped
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()
    step: int = 0
    run: RunSpec | None = None

    def metadata(self) -> dict[str, str]:
        """Everything but the run."""
        return {
            "model": self.model,
            "classes": str(self.classes),
            "shape": json.dumps(self.shape),
            "stored_shape": json.dumps(self.stored),
            "mean": json.dumps(self.mean),
            "std": json.dumps(self.std),
            "class_names": json.dumps(self.class_names),
            "step": str(self.step),
        }


@dataclass(frozen=True)
class Checkpoint:
    """`packing`: parameter names in the order of the packed optimizer state."""

    weights: dict[str, Array]
    optimizer_state: dict[str, Array] = field(default_factory=dict)
    info: CheckpointMetadata = field(default_factory=CheckpointMetadata)
    packing: tuple[str, ...] = ()


class CheckpointWriter:
    """Writes the checkpoints of one run to its directory."""

    def __init__(self, directory: Path, graph: Graph, metadata: Mapping[str, str], write_event: WriteEvent) -> None:
        self._directory, self._graph, self._metadata, self._write_event = directory, graph, metadata, write_event
        self._writer: threading.Thread | None = None
        self._error: Exception | None = None
        for partial in directory.glob(f".{layout.CHECKPOINTS}.*"):  # left by a writer that was killed
            partial.unlink()

    def save(self, step: int, state: State, optimizer_state: Mapping[str, Array]) -> None:
        """To be called between steps. Waits for a previous write: the memory plan has room for one copy only."""
        self.close()
        buffers = {OPTIMIZER_PREFIX + name: buffer.copy() for name, buffer in optimizer_state.items()}
        tensors = to_state_dict(self._graph, state) | buffers
        writer = threading.Thread(target=self._write, args=(step, tensors), name="checkpoint")
        try:
            writer.start()
        except RuntimeError:  # no memory for another thread: the step waits for the write, but the run continues
            self._write(step, tensors)
        else:
            self._writer = writer

    def close(self) -> None:
        """Wait until everything is written."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._error is not None:
            raise self._error

    def _write(self, step: int, tensors: dict[str, Array]) -> None:
        path = self._directory / layout.checkpoint_file(step)
        try:
            digest = safetensors.write(path, tensors, {**self._metadata, "step": str(step)})
            size = path.stat().st_size
            manifest = {"step": step, "file": path.name, "bytes": size, "sha256": digest}
            write_json(path.with_suffix(MANIFEST), manifest)
            self._remove_old()
        except OSError as error:
            message = f"checkpoint {path.name} was not written: {error.strerror}; training continues"
            self._write_event("warning", message=message)
        except Exception as error:  # noqa: BLE001 - raised by close() on the calling thread
            self._error = error
        else:
            self._write_event("checkpoint", step=step, file=path.name, bytes=size, sha256=digest)

    def _remove_old(self) -> None:
        for path in sorted(self._directory.glob(layout.CHECKPOINTS))[:-KEEP_NEWEST]:
            path.unlink()
            path.with_suffix(MANIFEST).unlink(missing_ok=True)


def remove_after(directory: Path, step: int) -> None:
    """Delete checkpoints of later steps. They are damaged, or this phone was away when the run went back to an earlier
    step; new checkpoints would count as older than they."""
    for path in directory.glob(layout.CHECKPOINTS):
        if layout.checkpoint_step(path) > step:
            path.unlink()
            path.with_suffix(MANIFEST).unlink(missing_ok=True)


def checkpoint_ranks(switches: Sequence[str]) -> frozenset[int]:
    """Ranks that write checkpoints, given the switch of each: the head phone and the first one on another switch; with
    a single switch, the last phone."""
    elsewhere = next((rank for rank, switch in enumerate(switches) if switch != switches[0]), len(switches) - 1)
    return frozenset({0, elsewhere})


def newest_intact(directory: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The manifest of the newest intact checkpoint, and the names of newer ones that are damaged."""
    damaged: list[str] = []
    for path in sorted(directory.glob(layout.CHECKPOINTS), reverse=True):
        manifest = read_json(path.with_suffix(MANIFEST))
        if _is_intact(path, manifest):
            return manifest, damaged
        damaged.append(path.name)
    return None, damaged


def _is_intact(path: Path, manifest: Any) -> bool:
    if not isinstance(manifest, dict):
        return False
    return manifest.get("file") == path.name and manifest.get("sha256") == _sha256(path)


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def build_metadata(spec: RunSpec, state: State, data: Dataset) -> dict[str, str]:
    """Metadata of all checkpoints of a run, without the step."""
    info = CheckpointMetadata(
        model=spec.network,
        classes=spec.data.classes,
        shape=spec.data.input_shape,
        stored=spec.data.shape,
        mean=tuple(data.mean.tolist()),
        std=tuple(data.std.tolist()),
        class_names=data.class_names,
    )
    return {
        "format": FORMAT,
        "schema": str(SCHEMA),
        **info.metadata(),
        "run_id": spec.run_id,
        "seed": str(spec.seed),
        "data": spec.data.name,
        "packing": json.dumps(list(state.packing.slots)),
        "run": spec.to_json(),
    }


def read(path: Path) -> Checkpoint:
    """A checkpoint, or a weights file of another program."""
    content = safetensors.read(path)
    weights = {name: value for name, value in content.tensors.items() if not name.startswith(OPTIMIZER_PREFIX)}
    optimizer_state = {
        name.removeprefix(OPTIMIZER_PREFIX): value
        for name, value in content.tensors.items()
        if name.startswith(OPTIMIZER_PREFIX)
    }
    return Checkpoint(weights, optimizer_state, _info(content.metadata, path), _packing(content.metadata, path))


def _packing(metadata: dict[str, str], path: Path) -> tuple[str, ...]:
    if metadata.get("format") != FORMAT:
        return ()
    try:
        return tuple(map(str, json.loads(metadata["packing"])))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: metadata missing or invalid: {error}") from None


def _info(metadata: dict[str, str], path: Path) -> CheckpointMetadata:
    """Exported weights have the same metadata, without the run."""
    ours = metadata.get("format") == FORMAT
    if not ours and "stored_shape" not in metadata:
        return CheckpointMetadata()
    if ours and metadata.get("schema") != str(SCHEMA):
        raise CheckpointError(
            f"{path} has schema {metadata.get('schema')!r}; this release supports {SCHEMA}: use a newer release"
        )
    try:
        return _checked(
            CheckpointMetadata(
                model=metadata["model"],
                classes=int(metadata["classes"]),
                shape=_image(metadata["shape"]),
                stored=_image(metadata["stored_shape"]),
                mean=_numbers(metadata["mean"]),
                std=_numbers(metadata["std"]),
                class_names=tuple(map(str, json.loads(metadata["class_names"]))),
                step=int(metadata["step"]),
                run=RunSpec.from_json(metadata["run"]) if ours else None,
            )
        )
    except (KeyError, TypeError, ValueError, RecursionError, SchemaError) as error:
        raise CheckpointError(f"{path} is damaged: metadata missing or invalid: {error}") from None


def _checked(about: CheckpointMetadata) -> CheckpointMetadata:
    channels = (about.shape or (0,))[-1]
    if {len(about.mean), len(about.std), (about.stored or (0,))[-1]} != {channels}:
        raise ValueError(f"mean, std and stored_shape do not have {channels} channels")
    if min(about.std) <= 0:
        raise ValueError(f"std: {min(about.std)}")
    if not 0 < (about.classes or 0) <= MAX_CLASSES:
        raise ValueError(f"classes: {about.classes}")
    return about


def _image(text: str) -> tuple[int, ...]:
    height, width, channels = map(int, json.loads(text))
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE and 0 < channels <= MAX_CHANNELS):
        raise ValueError(text)
    return height, width, channels


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(map(float, json.loads(text)))
    if not np.isfinite(numbers).all():
        raise ValueError(text)
    return numbers
