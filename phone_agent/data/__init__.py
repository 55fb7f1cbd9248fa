"""Samples: where they come from and who takes which when."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent import layout
from phone_agent.schema import DataSpec

Images = NDArray[np.uint8]
Labels = NDArray[np.integer[Any]]

SYNTHETIC = "synthetic"


class Dataset(Protocol):
    """The samples one phone holds, as bytes NHWC; `mean` and `std` by channel are of the whole dataset, in [0, 1]."""

    shape: tuple[int, int, int]
    classes: int
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    def __len__(self) -> int: ...

    def take(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]: ...


def open_dataset(spec: DataSpec, index: int, count: int, seed: int) -> Dataset:
    """Part `index` of `count`: read from the staged shard, or made up on the spot."""
    if spec.name == SYNTHETIC:
        from phone_agent.data.synthetic import Synthetic

        return Synthetic(spec.samples, spec.shape, spec.classes, seed=seed, index=index, count=count)
    from phone_agent.data.shards import open_shard

    shard = open_shard(layout.local(layout.shard_file(spec.name, index, count)))
    shard.check(spec)
    return shard
