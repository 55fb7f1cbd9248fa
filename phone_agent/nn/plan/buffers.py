"""Which buffer holds which storage at the moment; and how to have it again once it was dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.lowered_graph import LoweredGraph, Op, Storage, Value
from phone_agent.nn.plan.ops import ITEM_BYTES, Buffer, TensorView


class Buffers:
    def __init__(self, network: LoweredGraph, places: Addresses) -> None:
        self._places, self._batch = places, places.batch
        self._buffers: dict[Storage, Buffer] = {network.image.storage: places.images()}
        self.back: dict[Buffer, Storage] = {}  # what was made again
        self._again: Callable[[Op], None] = _nothing_was_dropped

    def see(self, value: Value) -> TensorView:
        """Where the value lies; computed again if it was dropped."""
        storage = value.storage
        if storage not in self._buffers:
            self._make_again(storage)
        return self._view(value)

    def make(self, storage: Storage) -> None:
        size = self._batch * storage.pixels * storage.channels * ITEM_BYTES[self._places.dtype(storage)]
        self._buffers.setdefault(storage, Buffer(storage.name, size))

    @contextmanager
    def dropping(self, storages: Collection[Storage], again: Callable[[Op], None]) -> Iterator[None]:
        """These are gone; within it, whoever asks for one of them has it made again, by `again`."""
        for storage in storages:
            self._buffers.pop(storage, None)
        self._again = again
        try:
            yield
        finally:
            self._again = _nothing_was_dropped  # leaves no cycle: the next plan has this one's memory at once

    def _make_again(self, storage: Storage) -> None:
        for work in storage.writers:
            for value in work.inputs:
                self.see(value)  # first, so that what this one needs is there before it
        self.make(storage)
        self.back[self._buffers[storage]] = storage
        for work in storage.writers:
            self._again(work)

    def _view(self, value: Value) -> TensorView:
        storage = value.storage
        rows = self._batch * storage.pixels
        dtype = self._places.dtype(storage)
        return TensorView(self._buffers[storage], rows, value.channels, storage.channels, value.start, dtype)


def _nothing_was_dropped(work: Op) -> None:
    raise AssertionError(work.name)
