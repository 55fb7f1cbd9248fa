"""Which level of folders is the classes'. If the one above were taken, training would go well and mean nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from orchestrator.data.sources.source import SourceError

SPLITS = {"train", "training", "val", "validation", "test", "testing"}
BESIDE_TRAIN = SPLITS | {"valid", "dev", "eval"}  # classes elsewhere: some sort what is valid and what is not
RECOGNISED = {"train", "val", "test"}
ALIKE = 2  # so many names that several folders share are classes; one, such as `other`, may be chance


class Levels:
    """The folders between `top`, where the classes' should be, and those that hold pictures."""

    def __init__(self, top: Path, holding: Iterable[Path]) -> None:
        self.top, self.holding = top, frozenset(holding)
        self.inside: dict[Path, set[Path]] = defaultdict(set)
        for folder in self.holding:
            for each in (folder, *folder.parents):
                if each == top:
                    break
                self.inside[each.parent].add(each)

    def classes(self) -> list[Path]:
        return sorted(self.inside[self.top])

    def fork(self, folder: Path) -> set[Path]:
        """The first folders, from this one down, of which there are several beside each other, and no picture."""
        inside = {folder}
        while len(inside) == 1:
            (only,) = inside
            inside = set() if only in self.holding else self.inside[only]
        return inside


def check(root: Path, top: Path, holding: Iterable[Path]) -> None:
    """`root`: what was named; `top`: it, or train/ in it, and then somebody said where classes are."""
    levels = Levels(top, holding)
    _check_only_class(levels, root)
    _check_splits(levels, root)
    if top == root:
        _check_alike(levels)


def _check_only_class(levels: Levels, root: Path) -> None:
    classes = levels.classes()
    fork = levels.fork(classes[0]) if len(classes) == 1 else None
    if fork:
        deeper = min(fork).parent
        moved = f"move the folders that are in {deeper} into {levels.top}"
        raise SourceError(
            f"{classes[0]} would be the only class: all pictures lie in folders below it",
            remedy=f"name {deeper} instead" if levels.top == root else moved,
        )


def _check_splits(levels: Levels, root: Path) -> None:
    for parent in sorted(levels.inside, key=lambda each: (len(each.parts), each)):
        beside = levels.inside[parent]
        splits = sorted(each for each in beside if each.name.casefold() in SPLITS)
        if splits and not _shows_trains(splits[0], beside, levels.holding):
            raise SourceError(
                f"{parent} has {_named(splits)}: that tells what pictures are for, not what they show",
                remedy=_instead(parent, splits, root, levels.holding),
            )


def _shows_trains(folder: Path, beside: Collection[Path], holding: Collection[Path]) -> bool:
    """On rails: a class of CIFAR-100 and others. No other name here is a thing to see."""
    others = [each.name.casefold() for each in beside if each != folder]
    return folder.name.casefold() == "train" and folder in holding and bool(others) and BESIDE_TRAIN.isdisjoint(others)


def _instead(parent: Path, splits: list[Path], root: Path, holding: Collection[Path]) -> str:
    if all(each in holding for each in splits):
        sort = "sort all pictures into train/CLASS/ and, held out, val/CLASS/"
        return f"move {_named(splits)} away, or {sort}" if len(splits) == 1 else sort
    names = {each.name for each in splits}
    if "train" in names and names <= RECOGNISED:
        return f"name {parent} instead"
    called = "call the folder to learn from train/ and the one held out val/"
    return called if parent == root else f"{called}, and name {parent}"


def _check_alike(levels: Levels) -> None:
    """As in part1/{cat,dog} and part2/{cat,dog}; kinds of animals and of vehicles have other names."""
    classes = levels.classes()
    if levels.holding.intersection(classes):
        return
    inside = {folder: {each.name for each in levels.fork(folder)} for folder in classes}
    counts = Counter(chain.from_iterable(inside.values()))
    shared = sorted(name for name, count in counts.items() if count > 1)
    if len(shared) >= ALIKE:
        first, second = [folder for folder, names in inside.items() if shared[0] in names][:2]
        raise SourceError(
            f"{first} and {second.name} hold no picture, but folders of the same names, such as {shared[0]} and "
            f"{shared[1]}: those look like the classes",
            remedy=f"name {min(levels.fork(first)).parent} instead, or a folder with the pictures of all; "
            f"if {first.name} and {second.name} are the classes, move all of them into {levels.top / 'train'}",
        )


def _named(folders: list[Path]) -> str:
    return " and ".join(f"{each.name}/" for each in folders)
