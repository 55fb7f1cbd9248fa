"""CIFAR-10 and CIFAR-100 as published: binary or Python version, archive or directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.contents import Contents, open_contents
from orchestrator.data.sources.pickled import UnsupportedPickleError, read
from orchestrator.data.sources.source import (
    Block,
    CorruptRecord,
    Images,
    SourceError,
    check_labels,
    corrupt_records,
    samples,
)

SHAPE = (32, 32, 3)
PIXELS = 32 * 32 * 3


@dataclass(frozen=True)
class _Variant:
    """One of the four published layouts: file names, size of the label header, keys of the pickles."""

    format: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    classes: int
    label_bytes: int = 0  # label bytes before the pixels, the last one is used; 0 for pickles
    label_key: bytes = b""
    names_key: bytes = b""

    @property
    def files(self) -> set[str]:
        return {*self.train_files, self.test_file, self.names_file}


_BIN, _BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6)), tuple(f"data_batch_{i}" for i in range(1, 6))
FLAVOURS = (
    _Variant("cifar10 binary", _BIN, "test_batch.bin", "batches.meta.txt", 10, 1),
    _Variant("cifar10 python", _BATCHES, "test_batch", "batches.meta", 10, 0, b"labels", b"label_names"),
    _Variant("cifar100 binary", ("train.bin",), "test.bin", "fine_label_names.txt", 100, 2),
    _Variant("cifar100 python", ("train",), "test", "meta", 100, 0, b"fine_labels", b"fine_label_names"),
)
FILES = set().union(*(variant.files for variant in FLAVOURS))


def recognize(path: Path) -> Cifar | None:
    """None if it is not CIFAR. Needs the test file and at least one training file."""
    contents = open_contents(path, FILES.__contains__)
    names = contents.names()
    for variant in FLAVOURS:
        if variant.test_file in names and names & set(variant.train_files) and variant.names_file in names:
            return Cifar(contents, variant)
    return None


class Cifar:
    shape = SHAPE

    def __init__(self, contents: Contents, variant: _Variant) -> None:
        self._contents, self._variant = contents, variant
        self.format = variant.format
        self.class_names = self._names()
        self._train_files = [name for name in variant.train_files if name in contents.names()]

    def train(self) -> Iterator[Block]:
        for name in self._variant.train_files:
            yield self._block(name) if name in self._train_files else self._missing(name)

    def test(self) -> Iterator[Block]:
        yield self._block(self._variant.test_file)

    def records(self) -> int:
        return sum(len(self._contents.read(name)) for name in (*self._train_files, self._variant.test_file)) // PIXELS

    def counts(self) -> tuple[int, int]:
        return samples(self.train()), samples(self.test())

    def known_corruption(self) -> list[CorruptRecord]:
        return corrupt_records(chain(self.train(), self.test()))

    def _missing(self, name: str) -> Block:
        damage = CorruptRecord(self._contents.where(name), -1, "the file is missing")
        return Block(np.empty((0, *SHAPE), np.uint8), np.empty(0, np.int64), [damage])

    def _names(self) -> tuple[str, ...]:
        name, variant = self._variant.names_file, self._variant
        if variant.label_bytes:
            lines = self._contents.read(name).decode("utf-8", "replace").split("\n")
            names = [line.strip() for line in lines if line.strip()]
        else:
            listed = self._pickle(name).get(variant.names_key)
            names = [_text(each) for each in listed] if isinstance(listed, list) else []
        if len(names) != variant.classes:
            raise SourceError(f"{self._contents.where(name)} lists {len(names)} classes instead of {variant.classes}")
        return tuple(names)

    def _block(self, name: str) -> Block:
        return self._binary(name) if self._variant.label_bytes else self._python(name)

    def _binary(self, name: str) -> Block:
        raw, where, start = self._contents.read(name), self._contents.where(name), self._variant.label_bytes
        count, rest = divmod(len(raw), start + PIXELS)
        records = np.frombuffer(raw, np.uint8, count * (start + PIXELS)).reshape(count, start + PIXELS)
        block = check_labels(
            _images(records[:, start:]), records[:, start - 1].astype(np.int64), range(self._variant.classes), where
        )
        cut = [CorruptRecord(where, count, f"truncated after {rest} bytes")] if rest else []
        return Block(block.images, block.labels, [*block.damaged, *cut])

    def _python(self, name: str) -> Block:
        where, found = self._contents.where(name), self._pickle(name)
        data, labels = found.get(b"data"), found.get(self._variant.label_key)
        if (
            not isinstance(data, np.ndarray)
            or data.ndim != 2
            or data.shape[1] != PIXELS
            or not isinstance(labels, list)
        ):
            raise SourceError(f"{where} does not contain 32x32x3 images with labels")
        if len(labels) != len(data) or not all(type(label) is int for label in labels):
            raise SourceError(f"{where} has {len(data)} images and {len(labels)} labels")
        return check_labels(_images(data), np.array(labels, np.int64), range(self._variant.classes), where)

    def _pickle(self, name: str) -> dict[bytes, object]:
        try:
            found: dict[bytes, object] = read(self._contents.read(name))
        except UnsupportedPickleError as error:
            where = self._contents.where(name)
            raise SourceError(
                f"{where} is not a CIFAR pickle: {error}", remedy="download it again from cs.toronto.edu"
            ) from None
        return found


def _images(planes: NDArray[np.uint8]) -> Images:
    """From planar RGB to interleaved pixels."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
