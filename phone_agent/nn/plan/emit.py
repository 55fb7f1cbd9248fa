"""Steps into the core's own structs, once every buffer has an address."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from phone_agent.core import ops
from phone_agent.nn.plan.ops import Buffer, Field, MemorySpace, OpSpec, Pointer, SharedStruct

EmittedOp = tuple[ops.Kind, ctypes.Structure]


@dataclass(frozen=True)
class AddressMap:
    homes: Mapping[MemorySpace, int]
    offsets: Mapping[Buffer, int]  # of what lies in the arena

    def of(self, place: Pointer) -> int:
        return self.homes[place.buffer.home] + self.offsets.get(place.buffer, 0) + place.offset


@dataclass
class Emitter:
    """Makes structs; keeps those that others point to alive, and knows who points at the images.

    `adding`: gradients of parameters are added to what is there.
    """

    addresses: AddressMap
    adding: bool = False
    shared: dict[SharedStruct, ops.BatchNorm] = field(default_factory=dict)
    image_pointers: list[tuple[ctypes.Structure, str]] = field(default_factory=list)

    def emit(self, steps: Iterable[OpSpec]) -> list[EmittedOp]:
        return [(step.kind, self._struct(step)) for step in steps]

    def point_at_images(self, address: int) -> None:
        for struct, name in self.image_pointers:
            setattr(struct, name, address)

    def _struct(self, step: OpSpec) -> ctypes.Structure:
        struct = self._filled(ops.STRUCTS[step.kind](), step.fields)
        if isinstance(struct, ops.ConvBackwardWeights):
            struct.accumulate = self.adding
        return struct

    def _filled(self, struct: ctypes.Structure, fields: Mapping[str, Field]) -> ctypes.Structure:
        for name, value in fields.items():
            self._set(struct, name, value)
        return struct

    def _set(self, struct: ctypes.Structure, name: str, value: Field) -> None:
        match value:
            case None:
                pass  # null already
            case Pointer():
                setattr(struct, name, self.addresses.of(value))
                if value.buffer.home == MemorySpace.IMAGES:
                    self.image_pointers.append((struct, name))
            case SharedStruct():
                setattr(struct, name, ctypes.addressof(self._norm(value)))
            case dict():
                self._filled(getattr(struct, name), value)
            case _:
                setattr(struct, name, value)

    def _norm(self, shared: SharedStruct) -> ops.BatchNorm:
        if shared not in self.shared:
            norm = ops.BatchNorm(accumulate=self.adding)
            self._filled(norm, shared.fields)
            self.shared[shared] = norm
        return self.shared[shared]
