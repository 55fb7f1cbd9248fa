"""Our reader and writer against the library everyone uses, and against files made to do harm."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as library

from phone_agent.contract import safetensors
from phone_agent.contract.safetensors import SafetensorsError

Tensors = dict[str, NDArray[Any]]
DTYPES = st.sampled_from(sorted({"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"}))
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
TENSORS = st.dictionaries(st.text(max_size=8), DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)), max_size=5)


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def same(left: Tensors, right: Tensors) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert (array.dtype, array.shape) == (right[name].dtype, right[name].shape)
        assert array.tobytes() == right[name].tobytes()


@settings(max_examples=40)  # each is synced to the disk
@given(tensors=TENSORS, metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_what_one_writes_the_other_reads(
    tensors: Tensors, metadata: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    digest = safetensors.write(path, tensors, metadata)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    same(library.load_file(path), tensors)
    ours = safetensors.read(path)
    same(ours.tensors, tensors)
    assert ours.metadata == metadata
    library.save_file(tensors, path, metadata or None)  # it writes a damaged header for nothing but {}
    theirs = safetensors.read(path)
    same(theirs.tensors, tensors)
    assert theirs.metadata == metadata


def test_arrays_of_any_order_are_written_as_they_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    odd = {"transposed": np.arange(6.0).reshape(2, 3).T, "big": np.arange(4, dtype=">i4"), "gaps": np.arange(9)[::2]}
    safetensors.write(path, odd)
    for name, array in safetensors.read(path).tensors.items():
        np.testing.assert_array_equal(array, odd[name])


def test_brain_floats_are_read_as_float32(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    values = np.array([1.0, -2.5, 1e30], np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2")
    path.write_bytes(raw({"w": entry(0, 6, "BF16", [3])}, halves.tobytes()))
    found = safetensors.read(path).tensors["w"]
    np.testing.assert_array_equal(found, (halves.astype(np.uint32) << 16).view(np.float32))
    assert found.dtype == np.float32


TWICE = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "too short to hold the header length"),
        (b"\x01\x02", "too short to hold the header length"),
        (raw({}, length=2**63), "at most 100000000"),
        (raw({}, length=50), "ends within the header"),
        (raw(b"not json"), "not JSON"),
        (raw(b"\xff{}"), "not JSON"),
        (raw(b"[]"), "not a JSON object"),
        (raw(b" {}"), "not a JSON object"),
        (raw(b"[" * 100_000), "nested too deeply"),
        (raw(b'{"a":' + b"9" * 5000 + b"}"), "not JSON"),
        (raw(b'{"a":NaN}'), "NaN"),
        (raw(TWICE, b"x"), "'a' twice"),
        (raw({"__metadata__": {"a": 1}}), "not a mapping of strings"),
        (raw({"a": 3}), "must be described by"),
        (raw({"a": {**entry(0, 1), "more": 1}}, b"x"), "must be described by"),
        (raw({"a": entry(0, 1, "F8_E4M3")}, b"x"), "unsupported type 'F8_E4M3'"),
        (raw({"a": entry(0, 1, shape=[True])}, b"x"), "has an invalid shape"),
        (raw({"a": entry(0, 1, shape=[-1])}, b"x"), "has an invalid shape"),
        (raw({"a": entry(0, 1, shape=[1] * 33)}, b"x"), "has an invalid shape"),
        (raw({"a": {**entry(0, 1), "data_offsets": [0, 1, 2]}}, b"x"), "not two whole numbers"),
        (raw({"a": {**entry(0, 1), "data_offsets": [0.0, 1.0]}}, b"x"), "not two whole numbers"),
        (raw({"a": entry(0, 4, "F32", [2])}, b"1234"), "needs 8"),
        (raw({"a": entry(0, 1, shape=[2**62, 2**62, 2**62])}, b"x"), "has 1 bytes"),
        (raw({"a": entry(0, 0, "F32", [0, 2**62])}), "too large for memory"),
        (raw({"a": entry(0, 2), "b": entry(1, 3)}, b"123"), "'b' overlaps"),
        (raw({"a": entry(0, 1), "b": entry(2, 3)}, b"123"), "gap of 1 bytes before it"),
        (raw({"a": entry(1, 2)}, b"12"), "gap of 1 bytes before it"),
        (raw({"a": entry(0, 5)}, b"123"), "truncated"),
        (raw({"a": entry(0, 1)}, b"123"), "longer than described"),
        (raw({}, b"hidden"), "longer than described"),
        (raw({"a": entry(0, 2, "BOOL")}, b"\x01\x02"), "boolean values"),
    ],
)
def test_hostile_files_are_refused_with_the_reason(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(SafetensorsError) as refused:
        safetensors.read(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


@settings(max_examples=60)
@given(damage=st.data())
def test_a_damaged_file_is_refused_or_read_as_the_library_reads_it(
    damage: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.safetensors"
    safetensors.write(path, {"w": np.arange(3.0), "b": np.arange(2, dtype=np.int16)}, {"step": "3"})
    content = bytearray(path.read_bytes())
    for position in damage.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[position] = damage.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = safetensors.read(path)
    except SafetensorsError:
        return
    try:
        theirs = library.load_file(path)
    except (SafetensorError, KeyError, OverflowError, ValueError, TypeError, AttributeError):
        pytest.fail("the library refuses what we read")
    same(found.tensors, theirs)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    safetensors.write(path, {"w": np.zeros(3)})
    before = path.read_bytes()
    with pytest.raises(SafetensorsError, match="complex"):
        safetensors.write(path, {"w": np.zeros(3, complex)})
    with pytest.raises(SafetensorsError, match="__metadata__"):
        safetensors.write(path, {"__metadata__": np.zeros(3)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SafetensorsError, match="No such file"):
        safetensors.read(tmp_path / "none")
