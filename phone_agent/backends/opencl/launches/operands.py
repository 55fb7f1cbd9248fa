"""Kernel arguments of fused inputs and gradients: INPUT and GRADIENT of kernels/common.cl, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from phone_agent.backends.opencl import emit
from phone_agent.backends.opencl.emit import Argument, TypedPointer
from phone_agent.nn.plan.ops import Field, Pointer, SharedStruct

Fields = Mapping[str, Field]


def struct_field(value: Field) -> Fields:
    """A nested struct."""
    return cast("Fields", value)


def int_field(fields: Fields, name: str) -> int:
    return int(cast("int", fields.get(name) or 0))


def float_field(fields: Fields, name: str) -> float:
    return float(cast("float", fields[name]))


def pointer_field(fields: Fields, name: str) -> Pointer | None:
    return cast("Pointer | None", fields.get(name))


def tensor_field(fields: Fields, name: str) -> TypedPointer:
    """A pointer with the dtype given in `fields`."""
    return emit.typed_pointer(pointer_field(fields, name), fields)


def norm_field(fields: Fields) -> SharedStruct:
    """The norm of an op that has one."""
    return cast("SharedStruct", fields["norm"])


def input_arguments(fields: Fields) -> list[Argument]:
    scale = pointer_field(fields, "scale")
    data = tensor_field(fields, "data")
    return [
        data,
        scale,
        pointer_field(fields, "shift"),
        int_field(fields, "ld"),
        int(scale is not None),
        int_field(fields, "act"),
    ]


def gradient_arguments(fields: Fields) -> list[Argument]:
    norm = fields.get("norm")
    affine = norm.fields if isinstance(norm, SharedStruct) else {}
    return [
        pointer_field(fields, "data"),
        tensor_field(fields, "y"),
        pointer_field(affine, "scale"),
        pointer_field(affine, "shift"),
        *(int_field(fields, name) for name in ("ld", "ld_y", "act", "accumulate")),
        int(norm is not None),
    ]


GEOMETRY = (
    "batch", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c",
    "kernel_h", "kernel_w", "stride", "pad_h", "pad_w", "dilation", "groups",
)  # fmt: skip


def geometry(fields: Fields) -> list[Argument]:
    return [int_field(fields, name) for name in GEOMETRY]
