"""Buffers: which buffer currently holds which storage. Discarded storages are rematerialized on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.lowered_graph import LoweredGraph, Op, Storage, Value
from phone_agent.nn.plan.ops import ITEM_BYTES, Buffer, TensorView


class Buffers:
    def __init__(self, lowered: LoweredGraph, addresses: Addresses) -> None:
        self._addresses, self._batch = addresses, addresses.batch
        self._buffers: dict[Storage, Buffer] = {lowered.image.storage: addresses.images()}
        self.rematerialized: dict[Buffer, Storage] = {}
        self._recompute: Callable[[Op], None] = _nothing_was_discarded

    def view(self, value: Value) -> TensorView:
        """Where the value is stored. Recomputes it first if it was discarded."""
        storage = value.storage
        if storage not in self._buffers:
            self._rematerialize(storage)
        rows = self._batch * storage.pixels
        dtype = self._addresses.dtype(storage)
        return TensorView(self._buffers[storage], rows, value.channels, storage.channels, value.start, dtype)

    def allocate(self, storage: Storage) -> None:
        size = self._batch * storage.pixels * storage.channels * ITEM_BYTES[self._addresses.dtype(storage)]
        self._buffers.setdefault(storage, Buffer(storage.name, size))

    @contextmanager
    def discard(self, storages: Collection[Storage], recompute: Callable[[Op], None]) -> Iterator[None]:
        """Discard these storages. Inside the context, `view` calls `recompute` for the ops that write them."""
        for storage in storages:
            self._buffers.pop(storage, None)
        self._recompute = recompute
        try:
            yield
        finally:
            self._recompute = _nothing_was_discarded  # breaks a reference cycle, so this plan's memory is freed at once

    def _rematerialize(self, storage: Storage) -> None:
        for op in storage.writers:
            for value in op.inputs:
                self.view(value)  # recomputes discarded inputs before the op that reads them
        self.allocate(storage)
        self.rematerialized[self._buffers[storage]] = storage
        for op in storage.writers:
            self._recompute(op)


def _nothing_was_discarded(op: Op) -> None:
    raise AssertionError(op.name)
