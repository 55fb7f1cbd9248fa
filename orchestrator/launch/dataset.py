"""The training data of a run: random images, or a dataset in the store of this computer."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, UsageError
from phone_agent.contract.choices import AUTO
from phone_agent.contract.schema import SYNTHETIC, DataSpec

if TYPE_CHECKING:
    from orchestrator.data.store import StoredDataset

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # the Debian package dataset-fashion-mnist
FASHION = "fashion-mnist"
FASHION_MNIST_SHAPE = (28, 28, 1)
SYNTHETIC_SAMPLES = 60000
_INSTALL = "apt-get install dataset-fashion-mnist"


@dataclass(frozen=True)
class Dataset:
    """`stored` is None for random images, and until a folder has been imported."""

    spec: DataSpec
    stored: StoredDataset | None = None
    class_names: tuple[str, ...] = ()
    folder: Path | None = None  # to be imported before the run can start
    note: str | None = None  # what the user should know about the choice
    warning: str | None = None


def find_dataset(source: str, model: str, *, augment: str = "none", on_corrupt: str = "fail") -> Dataset:
    """`source`: auto, synthetic, the name of a stored dataset, or a path with a slash.

    `auto` is Fashion-MNIST if the Debian package is installed and the model takes its images, else random images.
    A folder that is not in the store yet is only inspected here: `import_dataset` imports it, which may take an hour.
    """
    found = _find(source, model, on_corrupt)
    spec = replace(found.spec, augment=augment, on_corrupt=on_corrupt)
    return replace(found, spec=replace(spec, crop=_crop(spec, model)))


def import_dataset(dataset: Dataset) -> Dataset:
    """Imports the folder of a dataset that is not in the store yet."""
    from orchestrator.data.add import add

    if dataset.folder is None:
        return dataset
    expected = dataset.spec
    stored = add(expected.name, dataset.folder, on_corrupt=expected.on_corrupt).stored
    spec = replace(_stored_spec(stored), crop=expected.crop, augment=expected.augment, on_corrupt=expected.on_corrupt)
    return replace(dataset, spec=spec, stored=stored, class_names=stored.manifest.class_names, folder=None)


def _find(source: str, model: str, on_corrupt: str) -> Dataset:
    from phone_agent.api import models

    made_for = models.model(model)
    height, width, channels = made_for.shape
    spec = DataSpec(SYNTHETIC, SYNTHETIC_SAMPLES, (height, width, channels), made_for.classes, replicated=True)
    random_images = Dataset(spec, class_names=tuple(map(str, range(made_for.classes))))
    if source == SYNTHETIC:
        return random_images
    if source != AUTO:
        return _find_stored(source, on_corrupt)
    fits_fashion = made_for.shape == FASHION_MNIST_SHAPE
    if fits_fashion and FASHION_MNIST.is_dir():
        return _find_stored(FASHION, on_corrupt)
    advice = _INSTALL if fits_fashion else "clusterctl data add NAME DIRECTORY, then launch --data NAME"
    warning = (
        f"no --data given: random images ({height}x{width}). Results are meaningless; use this to measure speed only. "
        f"To train on real data: {advice}"
    )
    return replace(random_images, warning=warning)


def _find_stored(source: str, on_corrupt: str) -> Dataset:
    from orchestrator.data.store import Store

    if "/" not in source:
        if stored := Store().find(source):
            return _dataset(stored)
        if source != FASHION:
            Store().get(source)  # raises
        if not FASHION_MNIST.is_dir():
            raise UsageError(f"Fashion-MNIST is not installed at {FASHION_MNIST}", remedy=_INSTALL)
    folder = FASHION_MNIST if source == FASHION else Path(source).expanduser()
    name, imported = _slug(folder), Store().made_from(folder)
    if not imported:
        return _inspect(name, folder, on_corrupt)
    stored = min(imported, key=lambda each: each.name != name)
    return replace(_dataset(stored), note=f"{folder} was added before: using dataset '{stored.name}'")


def _dataset(stored: StoredDataset) -> Dataset:
    return Dataset(_stored_spec(stored), stored, stored.manifest.class_names)


def _inspect(name: str, folder: Path, on_corrupt: str) -> Dataset:
    """Counts the samples of a folder without reading them. Fails where the import would fail."""
    from orchestrator.data.add import preview

    source = preview(name, folder, on_corrupt=on_corrupt)
    samples, test_samples = source.counts()
    spec = DataSpec(name, samples, source.shape, len(source.class_names), test_samples=test_samples)
    note = f"{folder} will be imported as the dataset '{name}'"
    return Dataset(spec, class_names=source.class_names, folder=folder, note=note)


def _stored_spec(stored: StoredDataset) -> DataSpec:
    manifest = stored.manifest
    return DataSpec(
        manifest.name,
        manifest.samples,
        manifest.shape,
        len(manifest.class_names),
        test_samples=manifest.test_samples,
        digest=manifest.digest,
    )


def find_stored(spec: DataSpec) -> StoredDataset | None:
    """The exact dataset of a run, if this computer still has it. None for random images.

    An unreadable dataset counts as missing: phones that have their samples do not need this copy.
    """
    from orchestrator.data.store import Store

    stored = None
    if spec.name != SYNTHETIC:
        with suppress(ClusterctlError):
            stored = Store().find(spec.name)
    return stored if stored and stored.manifest.digest == spec.digest else None


def _crop(spec: DataSpec, model: str) -> tuple[int, int, int] | None:
    """Images larger than the network was designed for are cropped to its size; others are used as they are."""
    from phone_agent.api import models

    height, width, channels = spec.shape
    target_height, target_width, _ = models.model(model).shape
    if (height, width) == (target_height, target_width) or height < target_height or width < target_width:
        return None
    return target_height, target_width, channels


def _slug(directory: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "data"
