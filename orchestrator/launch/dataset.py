"""What a run is to learn from: made up, or a dataset of this computer's store."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.launch.run_spec import DEFAULT_MODEL
from phone_agent.contract.schema import DataSpec

if TYPE_CHECKING:
    from orchestrator.data.store import StoredDataset

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # Debian's dataset-fashion-mnist
FASHION = "fashion-mnist"
SYNTHETIC = "synthetic"
SYNTHETIC_SAMPLES = 60000
AUTO = "auto"
FASHION_MNIST_SHAPE = (28, 28, 1)
_INSTALL = "apt-get install dataset-fashion-mnist"


@dataclass(frozen=True)
class Dataset:
    """`stored` is None when phones make samples up themselves, and as long as they are not added."""

    spec: DataSpec
    stored: StoredDataset | None = None
    class_names: tuple[str, ...] = ()
    note: str | None = None  # what a person should know about this choice


def open_dataset(
    wanted: str,
    model: str = DEFAULT_MODEL,
    *,
    augment: str = "none",
    on_corrupt: str = "fail",
    adds: bool = True,
) -> Dataset:
    """`auto` is Fashion-MNIST, where Debian's package is installed and the network is made for it; else made up.

    A name is one of the store's. A path is added to the store first, under the name of the folder; that may take an
    hour, so without `adds` it is only looked at, and told what would be there.
    """
    augment = _known(augment)
    found = _choose(wanted, model, on_corrupt, adds=adds)
    spec = replace(found.spec, augment=augment, on_corrupt=on_corrupt)
    return replace(found, spec=replace(spec, crop=_read_size(spec, model)))


def _choose(wanted: str, model: str, on_corrupt: str, *, adds: bool) -> Dataset:
    from phone_agent.api import models

    made_for = models.model(model)
    height, width, channels = made_for.shape
    spec = DataSpec(SYNTHETIC, SYNTHETIC_SAMPLES, (height, width, channels), made_for.classes, replicated=True)
    made_up = Dataset(spec, class_names=tuple(map(str, range(made_for.classes))))
    if wanted == SYNTHETIC:
        return made_up
    if wanted == AUTO and made_for.shape != FASHION_MNIST_SHAPE:
        size = "x".join(map(str, made_for.shape))
        return replace(made_up, note=f"training on made-up images of {size}: what {model} is made for")
    if wanted == AUTO and not FASHION_MNIST.is_dir():
        return replace(made_up, note=f"training on made-up images: no Fashion-MNIST here ({_INSTALL})")
    return _stored(FASHION if wanted == AUTO else wanted, on_corrupt, adds=adds)


def _stored(wanted: str, on_corrupt: str, *, adds: bool) -> Dataset:
    from orchestrator.data.add import add
    from orchestrator.data.store import Store

    if "/" not in wanted:
        if stored := Store().find(wanted):
            return _of(stored)
        if wanted != FASHION:
            Store().get(wanted)
        if not FASHION_MNIST.is_dir():
            raise UsageError(f"no data at {FASHION_MNIST}", remedy=_INSTALL)
    path = FASHION_MNIST if wanted == FASHION else Path(wanted).expanduser()
    name, known = _slug(path), Store().made_from(path)
    known.sort(key=lambda each: each.name != name)
    if not known and not adds:
        return _expected(name, path, on_corrupt)
    stored = known[0] if known else add(name, path, on_corrupt=on_corrupt).stored
    return replace(_of(stored), note=f"{path} is the dataset '{stored.name}' (clusterctl data list)")


def _of(stored: StoredDataset) -> Dataset:
    return Dataset(spec_of(stored), stored, stored.manifest.class_names)


def _expected(name: str, path: Path, on_corrupt: str) -> Dataset:
    from orchestrator.data.add import preview

    source = preview(name, path, on_corrupt=on_corrupt)
    samples, held_out = source.counts()
    spec = DataSpec(name, samples, source.shape, len(source.class_names), test_samples=held_out)
    note = f"{path} will be the dataset '{name}'; its samples are counted, and not read yet"
    return Dataset(spec, class_names=source.class_names, note=note)


def spec_of(stored: StoredDataset) -> DataSpec:
    manifest = stored.manifest
    return DataSpec(
        manifest.name,
        manifest.samples,
        manifest.shape,
        len(manifest.class_names),
        test_samples=manifest.test_samples,
        digest=manifest.digest,
    )


def stored_as(spec: DataSpec) -> StoredDataset | None:
    """The very samples a run was planned with, if this computer still has them; none where phones make them up. What
    cannot be read is not there: phones that have theirs need nothing of it."""
    from orchestrator.data.store import Store

    stored = None
    if spec.name != SYNTHETIC:
        with suppress(ClusterctlError):
            stored = Store().find(spec.name)
    return stored if stored and stored.manifest.digest == spec.digest else None


def _known(augment: str) -> str:
    from phone_agent.api.training import UnknownAugmentationError, recipe

    try:
        recipe(augment)
    except UnknownAugmentationError as error:
        raise UsageError(str(error)) from None
    return augment


def _read_size(spec: DataSpec, model: str) -> tuple[int, int, int] | None:
    """What is larger than the network was made for is cut to that; all else is taken as it is."""
    from phone_agent.api import models

    height, width, channels = spec.shape
    wanted_height, wanted_width, _ = models.model(model).shape
    if (height, width) == (wanted_height, wanted_width) or height < wanted_height or width < wanted_width:
        return None
    return wanted_height, wanted_width, channels


def _slug(directory: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-") or "data"
