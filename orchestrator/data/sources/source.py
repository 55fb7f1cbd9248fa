"""What a dataset is made from."""

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
    """Nothing can be made of this; names the file."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy or "clusterctl data add --help tells what can be added")


@dataclass(frozen=True)
class Damage:
    """A record that cannot be used."""

    file: str
    index: int  # in that file; -1: the file as a whole
    reason: str

    def __str__(self) -> str:
        return f"{self.file}{f', record {self.index}' if self.index >= 0 else ''}: {self.reason}"


@dataclass(frozen=True)
class Block:
    """Some samples, in order, and what could not be read among them."""

    images: Images
    labels: Labels
    damaged: Sequence[Damage] = ()


class Source(Protocol):
    format: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]

    def train(self) -> Iterator[Block]: ...

    def test(self) -> Iterator[Block]: ...

    def records(self) -> int:
        """In all, for whoever waits."""
        ...

    def counts(self) -> tuple[int, int]:
        """To learn from, and held out: as many as there are, unless some turn out to be damaged."""
        ...

    def known_damage(self) -> list[Damage]:
        """What can be told before pictures are decoded: so that nobody waits an hour to be refused."""
        ...


def samples(blocks: Iterable[Block]) -> int:
    return sum(len(block.labels) for block in blocks)


def damage(blocks: Iterable[Block]) -> list[Damage]:
    return [each for block in blocks for each in block.damaged]


def labelled(
    images: Images, labels: NDArray[np.integer[Any]], classes: range, file: str, *, because: str = ""
) -> Block:
    """Counted from the first class on, and without the records whose label is of none."""
    good, reason = (labels >= classes.start) & (labels < classes.stop), f"is of no class{because}"
    damaged = [Damage(file, int(index), f"label {labels[index]} {reason}") for index in np.flatnonzero(~good)]
    return Block(images[good], labels[good].astype(np.int64) - classes.start, damaged)
