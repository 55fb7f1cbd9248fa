"""src/core.h and ops.py agree on the offset and size of every field and on all constants."""

from __future__ import annotations

import ctypes
import re
from enum import IntEnum

import pytest

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.core import build, ops
from phone_agent.core.library import library

HEADER = re.sub(r"/\*.*?\*/", "", (build.SOURCES / "core.h").read_text(), flags=re.DOTALL)
SIZES = {"i32": 4, "u32": 4, "float": 4, "i64": 8, "u64": 8, "double": 8, "void": 0, "u8": 1}


def _structs() -> dict[str, str]:
    return {name: body for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", HEADER, re.DOTALL)}


def _fields(body: str) -> list[tuple[str, str, bool]]:
    """(name, type, is it a pointer) of each field."""
    found = []
    for line in filter(None, (part.strip() for part in body.split(";"))):
        kind, names = re.sub(r"^const ", "", line).split(" ", 1)
        found += [(name.strip().lstrip("*"), kind, name.strip().startswith("*")) for name in names.split(",")]
    return found


def _measure(name: str) -> tuple[int, int]:
    """Size and alignment, as C lays them out."""
    if name in SIZES:
        return SIZES[name], max(SIZES[name], 1)
    *_, size, alignment = _layout(name)
    return size, alignment


def _layout(struct: str) -> tuple[list[tuple[str, int, int]], int, int]:
    """(field, offset, size) of each field, the struct's size and its alignment."""
    places, end, widest = [], 0, 1
    for field, kind, is_pointer in _fields(_structs()[struct]):
        size, alignment = (8, 8) if is_pointer else _measure(kind)
        end += -end % alignment
        places.append((field, end, size))
        end, widest = end + size, max(widest, alignment)
    return places, end + -end % widest, widest


def _python_name(struct: str) -> str:
    return "".join(part.capitalize() for part in struct.split("_"))


@pytest.mark.parametrize("struct", _structs())
def test_struct_layouts_agree(struct: str) -> None:
    mirror = getattr(ops, _python_name(struct))
    places, size, _ = _layout(struct)
    mirrored = [(name, getattr(mirror, name).offset, getattr(mirror, name).size) for name, *_ in mirror._fields_]
    assert mirrored == places
    assert ctypes.sizeof(mirror) == size


@pytest.mark.parametrize("kind", ops.Kind)
def test_struct_sizes_agree_with_the_library(kind: ops.Kind) -> None:
    assert library().core_sizeof(kind) == ctypes.sizeof(ops.STRUCTS[kind])


def test_unknown_kinds_have_no_size() -> None:
    assert library().core_sizeof(-1) == library().core_sizeof(len(ops.Kind)) == -1


@pytest.mark.parametrize(
    ("enum", "mirror", "prefix"),
    [
        ("kind", ops.Kind, ""),
        ("act", ops.Act, "ACT_"),
        ("algorithm", ops.Algorithm, ""),
        ("pooling", ops.Pooling, "POOLING_"),
        ("dtype", ops.DType, ""),
        ("ring_op", ops.RingOp, "RING_OP_"),
        ("span_kind", ops.SpanKind, "SPAN_"),
        ("ring_status", ops.RingStatus, "RING_"),
        ("optimizer_kind", ops.OptimizerKind, "OPTIMIZER_"),
    ],
)
def test_enums_agree(enum: str, mirror: type[IntEnum], prefix: str) -> None:
    body = re.search(rf"enum {enum} \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body is not None
    names = [name.strip().removeprefix(prefix) for name in body[1].split(",") if name.strip() not in {"", "KIND_COUNT"}]
    assert {name: number for number, name in enumerate(names)} == {item.name: item.value for item in mirror}


def test_constants_agree() -> None:
    constants = dict(
        re.findall(r"(CORE_ABI|MAX_THREADS|CORE_THREAD_POOL_BYTES|RING_MAX_IN_FLIGHT) = ([\d *]+)", HEADER)
    )
    numbers = {name: eval(text) for name, text in constants.items()}  # noqa: S307 - '64 * 1024'
    assert numbers == {
        "CORE_ABI": ops.ABI,
        "MAX_THREADS": MAX_THREADS,
        "CORE_THREAD_POOL_BYTES": ops.THREAD_POOL_BYTES,
        "RING_MAX_IN_FLIGHT": ops.RING_MAX_IN_FLIGHT,
    }
