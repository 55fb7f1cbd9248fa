"""Find the directory level of the classes. One level too high would train without errors on meaningless labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from orchestrator.data.sources.source import SourceError

SPLITS = {"train", "training", "val", "validation", "test", "testing"}
BESIDE_TRAIN = SPLITS | {"valid", "dev", "eval"}  # these can be class names elsewhere
RECOGNIZED = {"train", "val", "test"}
ALIKE = 2  # shared folder names that indicate classes; a single one, such as `other`, may be chance


class Levels:
    """The folders between `top`, where the classes should be, and the folders with images."""

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
        """The first level below this folder with several subfolders and no images."""
        inside = {folder}
        while len(inside) == 1:
            (only,) = inside
            inside = set() if only in self.holding else self.inside[only]
        return inside


def check(root: Path, top: Path, holding: Iterable[Path]) -> None:
    """`root`: the path given by the user; `top`: the same, or train/ inside it."""
    levels = Levels(top, holding)
    _check_only_class(levels, root)
    _check_splits(levels, root)
    if top == root:
        _check_shared_names(levels)


def _check_only_class(levels: Levels, root: Path) -> None:
    classes = levels.classes()
    fork = levels.fork(classes[0]) if len(classes) == 1 else None
    if fork:
        deeper = min(fork).parent
        moved = f"move the folders that are in {deeper} into {levels.top}"
        raise SourceError(
            f"{classes[0]} would be the only class: all images are in folders below it",
            remedy=f"use {deeper} instead" if levels.top == root else moved,
        )


def _check_splits(levels: Levels, root: Path) -> None:
    for parent in sorted(levels.inside, key=lambda each: (len(each.parts), each)):
        beside = levels.inside[parent]
        splits = sorted(each for each in beside if each.name.casefold() in SPLITS)
        if splits and not _is_train_class(splits[0], beside, levels.holding):
            raise SourceError(
                f"{parent} has {_named(splits)}: these are splits, not classes",
                remedy=_remedy_for_splits(parent, splits, root, levels.holding),
            )


def _is_train_class(folder: Path, beside: Collection[Path], holding: Collection[Path]) -> bool:
    """`train` as a class (the vehicle), as in CIFAR-100."""
    others = [each.name.casefold() for each in beside if each != folder]
    return folder.name.casefold() == "train" and folder in holding and bool(others) and BESIDE_TRAIN.isdisjoint(others)


def _remedy_for_splits(parent: Path, splits: list[Path], root: Path, holding: Collection[Path]) -> str:
    if all(each in holding for each in splits):
        sort = "sort the images into train/CLASS/ and val/CLASS/"
        return f"move {_named(splits)} away, or {sort}" if len(splits) == 1 else sort
    names = {each.name for each in splits}
    if "train" in names and names <= RECOGNIZED:
        return f"use {parent} instead"
    called = "rename the training folder to train/ and the held-out folder to val/"
    return called if parent == root else f"{called}, and use {parent}"


def _check_shared_names(levels: Levels) -> None:
    """Detect part1/{cat,dog} and part2/{cat,dog}, where the second level has the classes."""
    classes = levels.classes()
    if levels.holding.intersection(classes):
        return
    inside = {folder: {each.name for each in levels.fork(folder)} for folder in classes}
    counts = Counter(chain.from_iterable(inside.values()))
    shared = sorted(name for name, count in counts.items() if count > 1)
    if len(shared) >= ALIKE:
        first, second = [folder for folder, names in inside.items() if shared[0] in names][:2]
        raise SourceError(
            f"{first} and {second.name} have no images but share subfolder names, such as {shared[0]} and "
            f"{shared[1]}: these look like the classes",
            remedy=f"use {min(levels.fork(first)).parent} instead, or one folder with all images; "
            f"if {first.name} and {second.name} are the classes, move all of them into {levels.top / 'train'}",
        )


def _named(folders: list[Path]) -> str:
    return " and ".join(f"{each.name}/" for each in folders)
