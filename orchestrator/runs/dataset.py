"""Where a run's samples come from, and the shards they are sent in."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.plan.run import DEFAULT_MODEL
from phone_agent import layout
from phone_agent.schema import DataSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from phone_agent.data.shards import Name

    Images = NDArray[np.uint8]
    Samples = tuple[Images, Images]  # and their labels

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # Debian's dataset-fashion-mnist
SYNTHETIC = "synthetic"
SYNTHETIC_SAMPLES = 60000
AUTO = "auto"
FASHION_MNIST_SHAPE = (28, 28, 1)
_INSTALL = "apt-get install dataset-fashion-mnist"
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Parcel:
    """A file for a phone, known by its content."""

    path: Path
    remote: PurePosixPath
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """Samples to be sent; `train` is None when phones make them up themselves."""

    spec: DataSpec
    train: Samples | None = None
    test: Samples | None = None
    note: str | None = None  # what a person should know about this choice

    def write_parcels(self, count: int, out: Path) -> list[list[Parcel]]:
        """What each phone gets, in ring order: its part of the samples and of the held-out ones. Made-up: nothing."""
        parts: list[list[Parcel]] = [[] for _ in range(count)]
        for samples, name in ((self.train, layout.shard_file), (self.test, layout.test_file)):
            if samples is not None and (name is layout.shard_file or len(samples[0]) >= count):
                for part, parcel in zip(parts, self._write(samples, count, out, name), strict=True):
                    part.append(parcel)
        return parts

    def _write(self, samples: Samples, count: int, out: Path, name: Name) -> list[Parcel]:
        from phone_agent.data.shards import ShardError, write_shards

        try:
            paths = write_shards(*samples, count, out / self.spec.name, name)
        except ShardError as error:
            raise UsageError(str(error), remedy="fewer phones with --limit") from None
        return [_parcel(path, name(self.spec.name, index, count)) for index, path in enumerate(paths)]


def open_dataset(wanted: str, model: str = DEFAULT_MODEL) -> Dataset:
    """`auto` is Fashion-MNIST, where Debian's package is installed and the network is made for it; else made up."""
    from phone_agent import models

    made_for = models.model(model)
    height, width, channels = made_for.shape
    made_up = DataSpec(SYNTHETIC, SYNTHETIC_SAMPLES, (height, width, channels), made_for.classes)
    if wanted == SYNTHETIC:
        return Dataset(made_up)
    if wanted == AUTO and made_for.shape != FASHION_MNIST_SHAPE:
        size = "x".join(map(str, made_for.shape))
        return Dataset(made_up, note=f"training on made-up images of {size}: what {model} is made for")
    if wanted == AUTO and not FASHION_MNIST.is_dir():
        return Dataset(made_up, note=f"training on made-up images: no Fashion-MNIST here ({_INSTALL})")
    directory = FASHION_MNIST if wanted in {AUTO, "fashion-mnist"} else Path(wanted)
    if not directory.is_dir():
        raise UsageError(f"no data at {directory}", remedy=_remedy(directory))
    return _from_idx(directory)


def _from_idx(directory: Path) -> Dataset:
    train, test = _read(directory, *_TRAIN), _read(directory, *_TEST)
    if train is None:
        raise UsageError(f"{directory} has no {_TRAIN[0]}[.gz]", remedy="--data synthetic needs no files")
    images, labels = train
    shape = (int(images.shape[1]), int(images.shape[2]), int(images.shape[3]))
    return Dataset(DataSpec(_slug(directory), len(images), shape, int(labels.max()) + 1), train, test)


def _read(directory: Path, images_name: str, labels_name: str) -> Samples | None:
    from phone_agent.data.idx import read_images_and_labels
    from phone_agent.errors import AgentError

    images, labels = _existing(directory / images_name), _existing(directory / labels_name)
    if images is None or labels is None:
        return None
    try:
        return read_images_and_labels(images, labels)
    except AgentError as error:
        raise UsageError(str(error)) from None


def _existing(path: Path) -> Path | None:
    return next((file for file in (path, path.with_name(path.name + ".gz")) if file.is_file()), None)


def _slug(directory: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "data"


def _remedy(directory: Path) -> str:
    return _INSTALL if directory == FASHION_MNIST else "name a folder of IDX files"


def _parcel(path: Path, remote: PurePosixPath) -> Parcel:
    with path.open("rb") as file:
        return Parcel(path, remote, hashlib.file_digest(file, "sha256").hexdigest())
