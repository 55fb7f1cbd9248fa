"""Emission: op specs become the core's structs, once every buffer has an address."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from phone_agent.core import ops
from phone_agent.nn.plan.ops import Buffer, Field, MemorySpace, OpSpec, Pointer, SharedStruct

EmittedOp = tuple[ops.Kind, ctypes.Structure]


@dataclass(frozen=True)
class AddressMap:
    """Base addresses of the memory spaces, and offsets of buffers in the arena."""

    bases: Mapping[MemorySpace, int]
    offsets: Mapping[Buffer, int]

    def resolve(self, pointer: Pointer) -> int:
        return self.bases[pointer.buffer.space] + self.offsets.get(pointer.buffer, 0) + pointer.offset


@dataclass
class Emitter:
    """Builds structs, keeps shared structs alive, and records which fields point to the images.

    `accumulate`: parameter gradients are added to the existing ones.
    """

    addresses: AddressMap
    accumulate: bool = False
    shared: dict[SharedStruct, ops.BatchNorm] = field(default_factory=dict)
    image_fields: list[tuple[ctypes.Structure, str]] = field(default_factory=list)

    def emit(self, specs: Iterable[OpSpec]) -> list[EmittedOp]:
        return [(spec.kind, self._struct(spec)) for spec in specs]

    def set_image_address(self, address: int) -> None:
        for struct, name in self.image_fields:
            setattr(struct, name, address)

    def _struct(self, spec: OpSpec) -> ctypes.Structure:
        struct = self._fill(ops.STRUCTS[spec.kind](), spec.fields)
        if isinstance(struct, ops.ConvBackwardWeights):
            struct.accumulate = self.accumulate
        return struct

    def _fill(self, struct: ctypes.Structure, fields: Mapping[str, Field]) -> ctypes.Structure:
        for name, value in fields.items():
            self._set(struct, name, value)
        return struct

    def _set(self, struct: ctypes.Structure, name: str, value: Field) -> None:
        match value:
            case None:
                pass  # already null
            case Pointer():
                setattr(struct, name, self.addresses.resolve(value))
                if value.buffer.space == MemorySpace.IMAGES:
                    self.image_fields.append((struct, name))
            case SharedStruct():
                setattr(struct, name, ctypes.addressof(self._norm(value)))
            case dict():
                self._fill(getattr(struct, name), value)
            case _:
                setattr(struct, name, value)

    def _norm(self, shared: SharedStruct) -> ops.BatchNorm:
        if shared not in self.shared:
            norm = ops.BatchNorm(accumulate=self.accumulate)
            self._fill(norm, shared.fields)
            self.shared[shared] = norm
        return self.shared[shared]
