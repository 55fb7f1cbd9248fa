"""IDX, the format of MNIST: two zero bytes, a type, the dimensions, then the data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.contents import Contents, decompressed, open_contents
from orchestrator.data.sources.source import (
    Block,
    CorruptRecord,
    Labels,
    SourceError,
    check_labels,
    corrupt_records,
    samples,
)

UNSIGNED_BYTE = 8
MOST_DIMENSIONS = 4
MAX_FILE_BYTES = 1 << 28  # a record
RARE = 1 / 200  # fraction of labels beyond a gap that counts as corruption; more are classes
TRAIN, HELD_OUT = "train", ("t10k", "test")
NAMES = (
    "train-images-idx3-ubyte and train-labels-idx1-ubyte, test set t10k-… or test-…; "
    "also with .idx instead of -idx, gzipped, or with a common prefix"
)
FILE = re.compile(
    r"(?!\.)(?P<prefix>(?:.*[-_.])?)(?P<part>train|t10k|test)-(?P<kind>images(?=[-.]idx3)|labels(?=[-.]idx1))"
    r"[-.]idx[13]-ubyte(?:\.gz)?"
)

Pair = tuple[str, str]  # image file and label file


def recognize(path: Path) -> Idx | None:
    contents = open_contents(path, FILE.fullmatch)
    sets = _sets(contents.names())
    if not any(TRAIN in pairs for pairs in sets.values()):
        return None
    pairs = _only(sets, path)
    return Idx(contents, pairs[TRAIN], next((pairs[part] for part in HELD_OUT if part in pairs), None))


def _sets(names: Iterable[str]) -> dict[str, dict[str, Pair]]:
    """Files by prefix and split. Plain files are preferred over gzipped ones, a dash over a dot."""
    files: dict[str, dict[tuple[str, str], str]] = {}
    for found in filter(None, map(FILE.fullmatch, sorted(names))):
        files.setdefault(found["prefix"], {}).setdefault((found["part"], found["kind"]), found.string)
    return {prefix: _pairs(own) for prefix, own in files.items()}


def _pairs(files: dict[tuple[str, str], str]) -> dict[str, Pair]:
    return {
        part: (files[part, "images"], files[part, "labels"])
        for part in (TRAIN, *HELD_OUT)
        if (part, "images") in files and (part, "labels") in files
    }


def _only(sets: dict[str, dict[str, Pair]], path: Path) -> dict[str, Pair]:
    """Reject ambiguous directories."""
    if len(sets) > 1:
        names = ", ".join(f"{prefix}…" if prefix else "files without a prefix" for prefix in sorted(sets))
        raise SourceError(
            f"{path} contains IDX files from {len(sets)} datasets: {names}",
            remedy="put each dataset into its own folder",
        )
    (pairs,) = sets.values()
    if all(part in pairs for part in HELD_OUT):
        names = " and ".join(pairs[part][0] for part in HELD_OUT)
        raise SourceError(f"{path} contains {names}: only one can be the test set", remedy="move the other one away")
    return pairs


def _classes(labels: Labels) -> range:
    """The range of labels, starting at the smallest (1 for EMNIST letters).

    It ends at the first unused number if almost no label is above it: one corrupt byte must not create hundreds of
    classes. Datasets that skip a number have many labels above the gap."""
    numbers, counts = np.unique(labels, return_counts=True)
    if not numbers.size:
        return range(1)
    gapless = numbers == numbers[0] + np.arange(len(numbers))
    rare = counts[~gapless].sum() <= RARE * len(labels)
    return range(int(numbers[0]), int(numbers[gapless][-1] if rare else numbers[-1]) + 1)


def _of_classes(part: Block, classes: range, file: str) -> Block:
    because = f": training labels are {classes.start} to {classes.stop - 1}"
    block = check_labels(part.images, part.labels, classes, file, because=because)
    return Block(block.images, block.labels, [*block.damaged, *part.damaged])


class Idx:
    format = "idx"

    def __init__(self, contents: Contents, train_files: Pair, test_files: Pair | None) -> None:
        self._contents = contents
        train = self._read(train_files)
        test = self._read(test_files) if test_files else None
        height, width = train.images.shape[1:3]
        self.shape = (height, width, 1)
        if test and test.images.shape[1:] != self.shape:
            raise SourceError(f"{contents.path}: test images and training images differ in size")
        classes = _classes(train.labels)
        self._train = _of_classes(train, classes, train_files[1])
        self._test = _of_classes(test, classes, test_files[1]) if test and test_files else None
        self.class_names = tuple(map(str, classes))

    def train(self) -> Iterator[Block]:
        yield self._train

    def test(self) -> Iterator[Block]:
        if self._test:
            yield self._test

    def records(self) -> int:
        return sum(len(part.labels) + len(part.damaged) for part in (self._train, self._test) if part)

    def counts(self) -> tuple[int, int]:
        return samples(self.train()), samples(self.test())

    def known_corruption(self) -> list[CorruptRecord]:
        return corrupt_records(chain(self.train(), self.test()))

    def _read(self, names: Pair) -> Block:
        (pixels, cut_pixels), (labels, cut_labels) = (self._array(name) for name in names)
        if pixels.ndim != 3 or labels.ndim != 1 or not pixels.shape[1] * pixels.shape[2]:
            raise SourceError(
                f"{self._contents.where(names[0])} {pixels.shape} and {names[1]} {labels.shape} do not match"
            )
        count = min(len(pixels), len(labels))
        if not cut_pixels and not cut_labels and len(pixels) != len(labels):
            raise SourceError(f"{self._contents.where(names[0])} has {len(pixels)} images and {len(labels)} labels")
        return Block(pixels[:count, :, :, None], labels[:count].astype(np.int64), [*cut_pixels, *cut_labels])

    def _array(self, name: str) -> tuple[NDArray[np.uint8], list[CorruptRecord]]:
        """All complete records, and what is missing."""
        where = self._contents.where(name)
        raw = decompressed(self._contents.read(name), where)
        if len(raw) < 4 or raw[:3] != bytes((0, 0, UNSIGNED_BYTE)) or not 1 <= raw[3] <= MOST_DIMENSIONS:
            raise SourceError(f"{where} is not an IDX file of unsigned bytes")
        header = 4 + 4 * raw[3]
        if len(raw) < header:
            raise SourceError(f"{where} is truncated within its header", remedy="download it again")
        shape = tuple(int(size) for size in np.frombuffer(raw[4:header], ">u4"))
        record = prod(shape[1:])
        there = len(raw) - header
        if not 0 < record <= MAX_FILE_BYTES or there > prod(shape):
            raise SourceError(
                f"{where} is truncated: {len(raw)} bytes are too few for {shape}", remedy="download it again"
            )
        count = there // record
        cut = (
            [CorruptRecord(where, count, f"the file ends here; the header announces {shape[0]} records")]
            if count < shape[0]
            else []
        )
        array = np.frombuffer(raw, np.uint8, count * record, header).reshape(count, *shape[1:])
        return array, cut
