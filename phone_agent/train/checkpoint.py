"""A run's state as a file that anyone can open: weights under torchvision's names, what the optimizer remembers, the
run's specification and the step, from which follows which samples come next.

Not in it, so that a run which goes on from here is not the same to the bit: what coarse wires have yet to send of what
they rounded away, PowerSGD's directions, each phone's own running statistics (these are of all together), and where
phones step alone the momenta of all but the first.

Written beside the training by rank 0 and by a phone of another switch: what is copied at a step's end, a thread
writes. Beside each file lies what it should be: its size and sha256. One without that, or with another content, is
none: a power cut may have come in between.
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
KEPT = 2  # the newest ones
MANIFEST = ".json"

Array = NDArray[Any]
Tell = Callable[..., object]  # as EventLog.write


class CheckpointError(AgentError):
    """A checkpoint that cannot be used; names the file."""

    code = ErrorCode.BAD_CHECKPOINT


@dataclass(frozen=True)
class About:
    """What a file of weights says of itself. One from elsewhere says nothing."""

    model: str = ""
    classes: int | None = None
    shape: tuple[int, ...] | None = None  # of the images the network reads
    stored: tuple[int, ...] | None = None  # of the samples these are the middle of
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    class_names: tuple[str, ...] = ()
    step: int = 0
    run: RunSpec | None = None

    def metadata(self) -> dict[str, str]:
        """All but the run."""
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
    """`packing` names the parameters in the order in which the remembered numbers of each lie."""

    weights: dict[str, Array]
    remembered: dict[str, Array] = field(default_factory=dict)
    about: About = field(default_factory=About)
    packing: tuple[str, ...] = ()


class Checkpoints:
    """Of one run, in its directory."""

    def __init__(self, directory: Path, graph: Graph, metadata: Mapping[str, str], tell: Tell) -> None:
        self._directory, self._graph, self._metadata, self._tell = directory, graph, metadata, tell
        self._writer: threading.Thread | None = None
        self._bug: Exception | None = None
        for left in directory.glob(f".{layout.CHECKPOINTS}.*"):  # by somebody who was killed while writing
            left.unlink()

    def save(self, step: int, state: State, remembered: Mapping[str, Array]) -> None:
        """At a step's end. One that is still being written is waited for: memory is for one copy."""
        self.close()
        buffers = {OPTIMIZER_PREFIX + name: buffer.copy() for name, buffer in remembered.items()}
        tensors = to_state_dict(self._graph, state) | buffers
        self._writer = threading.Thread(target=self._write, args=(step, tensors), name="checkpoint")
        self._writer.start()

    def close(self) -> None:
        """Waits until all is written."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._bug is not None:
            raise self._bug

    def _write(self, step: int, tensors: dict[str, Array]) -> None:
        path = self._directory / layout.checkpoint_file(step)
        try:
            digest = safetensors.write(path, tensors, {**self._metadata, "step": str(step)})
            size = path.stat().st_size
            manifest = {"step": step, "file": path.name, "bytes": size, "sha256": digest}
            write_json(path.with_suffix(MANIFEST), manifest)
            self._remove_old()
        except OSError as error:
            message = f"checkpoint {path.name} was not written: {error.strerror}; the run goes on without it"
            self._tell("warning", message=message)
        except Exception as error:  # noqa: BLE001 - raised where somebody can hear it
            self._bug = error
        else:
            self._tell("checkpoint", step=step, file=path.name, bytes=size, sha256=digest)

    def _remove_old(self) -> None:
        for path in sorted(self._directory.glob(layout.CHECKPOINTS))[:-KEPT]:
            path.unlink()
            path.with_suffix(MANIFEST).unlink(missing_ok=True)


def savers(switches: Sequence[str]) -> frozenset[int]:
    """Which ranks write checkpoints, by each rank's switch: the head phone and the first of another switch; where there
    is only one switch, the last phone."""
    elsewhere = next((rank for rank, switch in enumerate(switches) if switch != switches[0]), len(switches) - 1)
    return frozenset({0, elsewhere})


def newest_whole(directory: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """What the newest undamaged checkpoint there should be and is; and the names of newer ones that are damaged."""
    damaged: list[str] = []
    for path in sorted(directory.glob(layout.CHECKPOINTS), reverse=True):
        told = read_json(path.with_suffix(MANIFEST))
        if isinstance(told, dict) and told.get("file") == path.name and told.get("sha256") == _sha256(path):
            return told, damaged
        damaged.append(path.name)
    return None, damaged


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def due(spec: RunSpec, step: int) -> bool:
    return step == spec.steps or bool(spec.recovery.checkpoint_every and step % spec.recovery.checkpoint_every == 0)


def describe(spec: RunSpec, state: State, data: Dataset) -> dict[str, str]:
    """A checkpoint's metadata, but for the step."""
    about = About(
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
        **about.metadata(),
        "run_id": spec.run_id,
        "seed": str(spec.seed),
        "data": spec.data.name,
        "packing": json.dumps(list(state.packing.slots)),
        "run": spec.to_json(),
    }


def read(path: Path) -> Checkpoint:
    """A checkpoint, or weights from elsewhere."""
    content = safetensors.read(path)
    weights = {name: value for name, value in content.tensors.items() if not name.startswith(OPTIMIZER_PREFIX)}
    remembered = {
        name.removeprefix(OPTIMIZER_PREFIX): value
        for name, value in content.tensors.items()
        if name.startswith(OPTIMIZER_PREFIX)
    }
    return Checkpoint(weights, remembered, _about(content.metadata, path), _packing(content.metadata, path))


def _packing(metadata: dict[str, str], path: Path) -> tuple[str, ...]:
    if metadata.get("format") != FORMAT:
        return ()
    try:
        return tuple(map(str, json.loads(metadata["packing"])))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its description lacks or garbles {error}") from None


def _about(metadata: dict[str, str], path: Path) -> About:
    """Exported weights say what checkpoints do, but for the run."""
    ours = metadata.get("format") == FORMAT
    if not ours and "stored_shape" not in metadata:
        return About()
    if ours and metadata.get("schema") != str(SCHEMA):
        raise CheckpointError(f"{path} has schema {metadata.get('schema')!r}; known is {SCHEMA}: use a newer release")
    try:
        return _checked(
            About(
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
        raise CheckpointError(f"{path} is damaged: its description lacks or garbles {error}") from None


def _checked(about: About) -> About:
    channels = (about.shape or (0,))[-1]
    if {len(about.mean), len(about.std), (about.stored or (0,))[-1]} != {channels}:
        raise ValueError(f"mean, std and stored_shape: they are not of {channels} channels")
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
