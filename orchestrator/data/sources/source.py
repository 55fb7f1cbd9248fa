"""The interface of a dataset source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import UsageError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class SourceError(UsageError):
    """The source cannot be imported; the message names the file."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy or "clusterctl data add --help lists the supported formats")


@dataclass(frozen=True)
class CorruptRecord:
    """A record that cannot be used."""

    file: str
    index: int  # in that file; -1 for the file as a whole
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{f', record {self.index}' if self.index >= 0 else ''}: {self.reason}"


@dataclass(frozen=True)
class Block:
    """Consecutive samples, and the corrupt records among them."""

    images: Images
    labels: Labels
    damaged: Sequence[CorruptRecord] = ()


class Source(Protocol):
    format: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]

    def train(self) -> Iterator[Block]: ...

    def test(self) -> Iterator[Block]: ...

    def records(self) -> int:
        """Total number of records, for progress."""
        ...

    def counts(self) -> tuple[int, int]:
        """Number of training and test samples, including records that may turn out to be corrupt."""
        ...

    def known_corruption(self) -> list[CorruptRecord]:
        """Corruption that is detected without decoding images, so that an import fails early."""
        ...


def samples(blocks: Iterable[Block]) -> int:
    return sum(len(block.labels) for block in blocks)


def corrupt_records(blocks: Iterable[Block]) -> list[CorruptRecord]:
    return [each for block in blocks for each in block.damaged]


def check_labels(
    images: Images, labels: NDArray[np.integer[Any]], classes: range, file: str, *, because: str = ""
) -> Block:
    """Labels counted from zero; records with a label outside `classes` are corrupt."""
    good, reason = (labels >= classes.start) & (labels < classes.stop), f"is not a valid class{because}"
    damaged = [CorruptRecord(file, int(index), f"label {labels[index]} {reason}") for index in np.flatnonzero(~good)]
    return Block(images[good], labels[good].astype(np.int64) - classes.start, damaged)
