"""Gradient reduction: how the buckets of one training step become allreduces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from phone_agent.comm import powersgd
from phone_agent.comm.collective import Collective
from phone_agent.comm.executor import SpanCallback
from phone_agent.comm.factory import make_collective
from phone_agent.comm.hierarchical import assign_groups
from phone_agent.comm.wire import Residuals, wire_format
from phone_agent.comm.world import World

if TYPE_CHECKING:
    from phone_agent.comm.autotune import CollectiveConfig
    from phone_agent.contract.schema import RunSpec
    from phone_agent.nn.packing import Packing


class Reducer(Protocol):
    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        """Replace gradients[part] by the sum over all ranks. A part holds whole parameters. `step` counts from 1."""
        ...


class StatefulReducer(Reducer, Protocol):
    def persistent_buffers(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Buffers that live from step to step, for `gradients` of this layout. Call before the first reduce.

        `residuals` differ by rank; all other buffers are the same on every rank. The caller may restore their contents
        before the first reduce.
        """
        ...


class PackedReducer:
    """One allreduce per bucket."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        del step
        self._collective.allreduce(gradients[part])

    def persistent_buffers(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        residuals = getattr(self._collective, "residuals", None)
        buffer = residuals.attach(gradients) if isinstance(residuals, Residuals) else None
        return {} if buffer is None else {"residuals": buffer}


class ChunkwiseReducer:
    """One allreduce per parameter, as in the paper before it packed gradients. `offsets`: where parameters begin."""

    def __init__(self, collective: Collective, offsets: Sequence[int]) -> None:
        self._collective, self._offsets = collective, offsets

    def reduce(self, gradients: NDArray[np.float32], part: slice, step: int) -> None:
        del step
        low, high, _ = part.indices(gradients.size)
        starts = [offset for offset in self._offsets if low <= offset < high]
        for start, stop in pairwise([*starts, high]):
            self._collective.allreduce(gradients[start:stop])

    def persistent_buffers(self, gradients: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """None: fp32 loses nothing."""
        del gradients
        return {}


def make_reducer(
    spec: RunSpec, world: World, packing: Packing, config: CollectiveConfig, on_span: SpanCallback | None = None
) -> StatefulReducer:
    """The persistent buffers depend on the wire format and not on the number of ranks.

    An in-memory checkpoint with other buffers would be rejected, and the run would lose its progress.
    """
    groups = assign_groups([rank.switch for rank in spec.ranks], config.group)
    compress = config.wire == "powersgd"
    wire = powersgd.WIRE if compress else wire_format(config.wire)
    collective = make_collective(config.algorithm, world, wire, groups)
    collective.on_span = on_span
    if compress:
        uncompressed = powersgd.uncompressed_steps(spec.steps)
        return powersgd.PowerSgd(
            collective, packing, seed=spec.seed, uncompressed=uncompressed, single_rank=world.size == 1
        )
    if config.algorithm == "chunkwise":
        return ChunkwiseReducer(collective, parameter_offsets(packing))
    return PackedReducer(collective)


def parameter_offsets(packing: Packing) -> list[int]:
    return [slot.offset for slot in packing.slots.values()]
