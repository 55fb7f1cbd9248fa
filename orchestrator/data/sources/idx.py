"""IDX, the format of the MNIST family: two zero bytes, a type, the dimensions, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.sources.contents import Contents, open_contents, unzipped
from orchestrator.data.sources.source import Block, Damage, Labels, SourceError, damage, labelled, samples

UNSIGNED_BYTE = 8
MOST_DIMENSIONS = 4
MOST_BYTES = 1 << 28  # a record
RARE = 1 / 200  # of all labels: so few with numbers beyond a gap are damage, more are classes
TRAIN, TEST = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
FILES = {name + ending for name in TRAIN + TEST for ending in ("", ".gz")}


def recognise(path: Path) -> Idx | None:
    contents = open_contents(path, FILES)
    return Idx(contents) if all(_present(contents, name) for name in TRAIN) else None


def _present(contents: Contents, name: str) -> str | None:
    return next((each for each in (name, name + ".gz") if each in contents.names()), None)


def _classes(labels: Labels) -> int:
    """Up to the first number that no image has, if next to none is above it: one damaged byte would make hundreds of
    classes of ten. Some sets leave a number out, and have many images above it; EMNIST's letters start at 1."""
    numbers, counts = np.unique(labels, return_counts=True)
    if not numbers.size:
        return 1
    gapless = numbers == numbers[0] + np.arange(len(numbers))
    rare = counts[~gapless].sum() <= RARE * len(labels)
    return int(numbers[gapless][-1] if rare else numbers[-1]) + 1


def _of_classes(part: Block, classes: int, file: str) -> Block:
    block = labelled(part.images, part.labels, classes, file, because=f": no image to learn from is of {classes}")
    return Block(block.images, block.labels, [*block.damaged, *part.damaged])


class Idx:
    format = "idx"

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        train = self._read(TRAIN)
        test = self._read(TEST) if all(_present(contents, name) for name in TEST) else None
        height, width = train.images.shape[1:3]
        self.shape = (height, width, 1)
        if test and test.images.shape[1:] != self.shape:
            raise SourceError(f"{contents.path}: the test images are of another size than the others")
        classes = _classes(train.labels)
        self._train, self._test = _of_classes(train, classes, TRAIN[1]), test and _of_classes(test, classes, TEST[1])
        self.class_names = tuple(map(str, range(classes)))

    def train(self) -> Iterator[Block]:
        yield self._train

    def test(self) -> Iterator[Block]:
        if self._test:
            yield self._test

    def records(self) -> int:
        return sum(len(part.labels) + len(part.damaged) for part in (self._train, self._test) if part)

    def counts(self) -> tuple[int, int]:
        return samples(self.train()), samples(self.test())

    def known_damage(self) -> list[Damage]:
        return damage(chain(self.train(), self.test()))

    def _read(self, names: tuple[str, str]) -> Block:
        (pixels, cut_pixels), (labels, cut_labels) = (self._array(name) for name in names)
        if pixels.ndim != 3 or labels.ndim != 1 or not pixels.shape[1] * pixels.shape[2]:
            raise SourceError(
                f"{self._contents.where(names[0])} {pixels.shape} and {names[1]} {labels.shape} do not match"
            )
        count = min(len(pixels), len(labels))
        if not cut_pixels and not cut_labels and len(pixels) != len(labels):
            raise SourceError(f"{self._contents.where(names[0])} has {len(pixels)} images and {len(labels)} labels")
        return Block(pixels[:count, :, :, None], labels[:count].astype(np.int64), [*cut_pixels, *cut_labels])

    def _array(self, name: str) -> tuple[NDArray[np.uint8], list[Damage]]:
        """As many whole records as there are; and what is missing."""
        present = _present(self._contents, name) or name
        where = self._contents.where(present)
        raw = unzipped(self._contents.read(present), where)
        if len(raw) < 4 or raw[:3] != bytes((0, 0, UNSIGNED_BYTE)) or not 1 <= raw[3] <= MOST_DIMENSIONS:
            raise SourceError(f"{where} is not an IDX file of unsigned bytes")
        header = 4 + 4 * raw[3]
        if len(raw) < header:
            raise SourceError(f"{where} is damaged: it ends within its header", remedy="download it again")
        shape = tuple(int(size) for size in np.frombuffer(raw[4:header], ">u4"))
        record = prod(shape[1:])
        there = len(raw) - header
        if not 0 < record <= MOST_BYTES or there > prod(shape):
            raise SourceError(f"{where} is damaged: {len(raw)} bytes do not hold {shape}", remedy="download it again")
        count = there // record
        cut = [Damage(where, count, f"the file ends here; {shape[0]} were promised")] if count < shape[0] else []
        array = np.frombuffer(raw, np.uint8, count * record, header).reshape(count, *shape[1:])
        return array, cut
