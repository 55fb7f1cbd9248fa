"""Samples: where they come from and who takes which when."""

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
    """Samples as bytes NHWC, numbered over the whole dataset; `mean` and `std` by channel are in [0, 1]."""

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @property
    def classes(self) -> int: ...

    @property
    def damaged(self) -> Collection[int]:
        """The numbers of those that were found damaged so far: whoever takes one of them gets another in its place."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]: ...


def _quietly(_: str) -> None:
    pass


def open_dataset(
    spec: DataSpec,
    seed: int,
    batches: Sequence[int] = (1,),
    rank: int = 0,
    *,
    tell: Callable[[str], None] = _quietly,
) -> Dataset:
    """What is trained on: made up on the spot, or what lies on this phone, which is rank `rank` of those batches."""
    if spec.name == SYNTHETIC:
        from phone_agent.data.synthetic import Synthetic

        return Synthetic(spec.samples, spec.shape, spec.classes, seed=seed)
    from phone_agent.contract.sharding import rank_spans

    spans = () if spec.replicated else rank_spans(spec, batches, rank)
    return _staged(spec, spans, tell, held_out=False)


def open_test(spec: DataSpec, seed: int, *, tell: Callable[[str], None] = _quietly) -> Dataset | None:
    """All held-out samples, which every phone has; None where there are none."""
    if not spec.test_samples:
        return None
    if spec.name == SYNTHETIC:
        from phone_agent.data.synthetic import Synthetic

        return Synthetic(spec.test_samples, spec.shape, spec.classes, seed=seed, first=spec.samples)
    return _staged(spec, (), tell, held_out=True)


def _staged(
    spec: DataSpec, spans: Sequence[tuple[int, int]], tell: Callable[[str], None], *, held_out: bool
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
            f"{directory} holds another {spec.name} than the run expects",
            f"clusterctl data push {spec.name}",
            code=ErrorCode.DATA_MISSING,
        )
    files = manifest.test if held_out else manifest.train
    return Staged(directory, manifest, files, spans, on_corrupt=spec.on_corrupt, tell=tell, lock=locks.hold(directory))
