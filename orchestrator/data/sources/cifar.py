"""CIFAR-10 and CIFAR-100 as their authors publish them: binary or python version, archive or folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.contents import Contents, open_contents
from orchestrator.data.sources.pickled import PickleRefusedError, read
from orchestrator.data.sources.source import Block, Damage, Images, SourceError, damage, labelled, samples

SHAPE = (32, 32, 3)
PIXELS = 32 * 32 * 3


@dataclass(frozen=True)
class _Flavour:
    """One of the four published layouts: which files, how a binary record starts, what its pickles call things."""

    format: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    classes: int
    label_bytes: int = 0  # before the pixels, the last one counting; 0: pickles
    label_key: bytes = b""
    names_key: bytes = b""

    @property
    def files(self) -> set[str]:
        return {*self.train_files, self.test_file, self.names_file}


_BIN, _BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6)), tuple(f"data_batch_{i}" for i in range(1, 6))
FLAVOURS = (
    _Flavour("cifar10 binary", _BIN, "test_batch.bin", "batches.meta.txt", 10, 1),
    _Flavour("cifar10 python", _BATCHES, "test_batch", "batches.meta", 10, 0, b"labels", b"label_names"),
    _Flavour("cifar100 binary", ("train.bin",), "test.bin", "fine_label_names.txt", 100, 2),
    _Flavour("cifar100 python", ("train",), "test", "meta", 100, 0, b"fine_labels", b"fine_label_names"),
)
FILES = set().union(*(flavour.files for flavour in FLAVOURS))


def recognise(path: Path) -> Cifar | None:
    """None where it is something else. Of the training files at least one must be there, and the test file."""
    contents = open_contents(path, FILES.__contains__)
    names = contents.names()
    for flavour in FLAVOURS:
        if flavour.test_file in names and names & set(flavour.train_files) and flavour.names_file in names:
            return Cifar(contents, flavour)
    return None


class Cifar:
    shape = SHAPE

    def __init__(self, contents: Contents, flavour: _Flavour) -> None:
        self._contents, self._flavour = contents, flavour
        self.format = flavour.format
        self.class_names = self._names()
        self._train_files = [name for name in flavour.train_files if name in contents.names()]

    def train(self) -> Iterator[Block]:
        for name in self._flavour.train_files:
            yield self._block(name) if name in self._train_files else self._missing(name)

    def test(self) -> Iterator[Block]:
        yield self._block(self._flavour.test_file)

    def records(self) -> int:
        return sum(len(self._contents.read(name)) for name in (*self._train_files, self._flavour.test_file)) // PIXELS

    def counts(self) -> tuple[int, int]:
        return samples(self.train()), samples(self.test())

    def known_damage(self) -> list[Damage]:
        return damage(chain(self.train(), self.test()))

    def _missing(self, name: str) -> Block:
        damage = Damage(self._contents.where(name), -1, "the file is missing")
        return Block(np.empty((0, *SHAPE), np.uint8), np.empty(0, np.int64), [damage])

    def _names(self) -> tuple[str, ...]:
        name, flavour = self._flavour.names_file, self._flavour
        if flavour.label_bytes:
            lines = self._contents.read(name).decode("utf-8", "replace").split("\n")
            names = [line.strip() for line in lines if line.strip()]
        else:
            listed = self._pickle(name).get(flavour.names_key)
            names = [_text(each) for each in listed] if isinstance(listed, list) else []
        if len(names) != flavour.classes:
            raise SourceError(f"{self._contents.where(name)} names {len(names)} classes, not {flavour.classes}")
        return tuple(names)

    def _block(self, name: str) -> Block:
        return self._binary(name) if self._flavour.label_bytes else self._python(name)

    def _binary(self, name: str) -> Block:
        raw, where, start = self._contents.read(name), self._contents.where(name), self._flavour.label_bytes
        count, rest = divmod(len(raw), start + PIXELS)
        records = np.frombuffer(raw, np.uint8, count * (start + PIXELS)).reshape(count, start + PIXELS)
        block = labelled(
            _images(records[:, start:]), records[:, start - 1].astype(np.int64), range(self._flavour.classes), where
        )
        cut = [Damage(where, count, f"the file ends after {rest} bytes of it")] if rest else []
        return Block(block.images, block.labels, [*block.damaged, *cut])

    def _python(self, name: str) -> Block:
        where, found = self._contents.where(name), self._pickle(name)
        data, labels = found.get(b"data"), found.get(self._flavour.label_key)
        if (
            not isinstance(data, np.ndarray)
            or data.ndim != 2
            or data.shape[1] != PIXELS
            or not isinstance(labels, list)
        ):
            raise SourceError(f"{where} does not hold images of 32x32x3 and their labels")
        if len(labels) != len(data) or not all(type(label) is int for label in labels):
            raise SourceError(f"{where} has {len(data)} images and {len(labels)} labels")
        return labelled(_images(data), np.array(labels, np.int64), range(self._flavour.classes), where)

    def _pickle(self, name: str) -> dict[bytes, object]:
        try:
            found: dict[bytes, object] = read(self._contents.read(name))
        except PickleRefusedError as error:
            where = self._contents.where(name)
            raise SourceError(f"{where} is refused: {error}", remedy="download it again from cs.toronto.edu") from None
        return found


def _images(planes: NDArray[np.uint8]) -> Images:
    """From all red, all green, all blue to pixels."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
