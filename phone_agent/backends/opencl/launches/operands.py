"""Sources and sinks as arguments of kernels: SOURCE and SINK of kernels/common.cl, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from phone_agent.backends.opencl import emit
from phone_agent.backends.opencl.emit import Argument, Stored
from phone_agent.nn.plan.ops import Field, Place, Shared

Fields = Mapping[str, Field]


def fields(value: Field) -> Fields:
    """A struct within a step's."""
    return cast("Fields", value)


def whole(fields: Fields, name: str) -> int:
    return int(cast("int", fields.get(name) or 0))


def number(fields: Fields, name: str) -> float:
    return float(cast("float", fields[name]))


def place(fields: Fields, name: str) -> Place | None:
    return cast("Place | None", fields.get(name))


def stored(fields: Fields, name: str) -> Stored:
    """A tensor of the step's, in numbers of the type that `fields` say."""
    return emit.stored(place(fields, name), fields)


def norm_of(fields: Fields) -> Shared:
    """Of a step that has one."""
    return cast("Shared", fields["norm"])


def source(fields: Fields) -> list[Argument]:
    scale = place(fields, "scale")
    data = stored(fields, "data")
    return [data, scale, place(fields, "shift"), whole(fields, "ld"), int(scale is not None), whole(fields, "act")]


def sink(fields: Fields) -> list[Argument]:
    norm = fields.get("norm")
    known = norm.fields if isinstance(norm, Shared) else {}
    return [
        place(fields, "data"),
        stored(fields, "y"),
        place(known, "scale"),
        place(known, "shift"),
        *(whole(fields, name) for name in ("ld", "ld_y", "act", "accumulate")),
        int(norm is not None),
    ]


GEOMETRY = (
    "batch", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c",
    "kernel_h", "kernel_w", "stride", "pad_h", "pad_w", "dilation", "groups",
)  # fmt: skip


def geometry(fields: Fields) -> list[Argument]:
    return [whole(fields, name) for name in GEOMETRY]
