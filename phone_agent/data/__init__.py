"""Datasets and sampling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import SYNTHETIC, DataSpec
from phone_agent.contract.shards import Images, Labels


class Dataset(Protocol):
    """Samples as NHWC bytes, numbered over the whole dataset; `mean` and `std` per channel are in [0, 1]."""

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @property
    def classes(self) -> int: ...

    @property
    def damaged(self) -> Collection[int]:
        """Numbers of the samples found damaged so far; reading one of them returns another in its place."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]: ...


def _ignore(_: str) -> None:
    pass


def open_dataset(
    spec: DataSpec,
    seed: int,
    batches: Sequence[int] = (1,),
    rank: int = 0,
    *,
    warn: Callable[[str], None] = _ignore,
) -> Dataset:
    """The training set: synthetic, or the data on this phone, which is rank `rank` of those batches."""
    if spec.name == SYNTHETIC:
        from phone_agent.data.synthetic import Synthetic

        return Synthetic(spec.samples, spec.shape, spec.classes, seed=seed)
    from phone_agent.contract.sharding import rank_spans

    spans = () if spec.replicated else rank_spans(spec, batches, rank)
    return _staged(spec, spans, warn, held_out=False)


def open_test(spec: DataSpec, seed: int, *, warn: Callable[[str], None] = _ignore) -> Dataset | None:
    """All held-out samples, which every phone has; None if there are none."""
    if not spec.test_samples:
        return None
    if spec.name == SYNTHETIC:
        from phone_agent.data.synthetic import Synthetic

        return Synthetic(spec.test_samples, spec.shape, spec.classes, seed=seed, first=spec.samples)
    return _staged(spec, (), warn, held_out=True)


def _staged(
    spec: DataSpec, spans: Sequence[tuple[int, int]], warn: Callable[[str], None], *, held_out: bool
) -> Dataset:
    from phone_agent.contract.shards import ShardError
    from phone_agent.data import locks
    from phone_agent.data.staged import Staged, read_manifest

    directory = layout.local(layout.dataset_dir(spec.name))
    manifest = read_manifest(directory)
    if (manifest.shape, len(manifest.class_names)) != (spec.shape, spec.classes) or (
        spec.digest and manifest.digest != spec.digest
    ):
        raise ShardError(
            f"{directory} has another version of {spec.name} than the run expects",
            f"clusterctl data push {spec.name}",
            code=ErrorCode.DATA_MISSING,
        )
    files = manifest.test if held_out else manifest.train
    return Staged(
        directory, manifest, files, spans, on_corrupt=spec.on_corrupt, warn=warn, lock=locks.shared(directory)
    )
