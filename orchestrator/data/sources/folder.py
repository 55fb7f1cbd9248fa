"""Folders of pictures, one a class: train/CLASS/*.jpg and val/CLASS/*.jpg, as ImageNet, or only CLASS/*.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.data.sources import levels
from orchestrator.data.sources.source import Block, Damage, Images, SourceError
from orchestrator.data.walk import walk
from orchestrator.errors import ClusterctlError
from phone_agent.contract import rng
from phone_agent.contract.shards import MAX_CLASSES

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = {".jpg", ".jpeg", ".png"}
OTHER_ENDINGS = {  # of pictures that are not read: told, since whoever has them believes they are learned from
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".pgm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
LIKELY = ENDINGS | OTHER_ENDINGS
HELD_OUT = ("val", "test")
MOST_PIXELS = 200_000_000  # of one picture: more is a bomb
CHUNK = 64
ORDER = 20_260_131  # pictures are stored in a random order, always the same: any part of them is of all classes

Listing = Mapping[Path, Sequence[Path]]  # what looks like a picture, by the folder that it lies in


@dataclass(frozen=True)
class Picture:
    path: Path
    label: int


@dataclass(frozen=True)
class Part:
    """What is learned from, or held out; and what lies there like a picture, and cannot be one of them."""

    pictures: Sequence[Picture] = ()
    damaged: Sequence[Damage] = ()


def recognise(path: Path, size: int) -> Folder | None:
    if not path.is_dir():
        return None
    train = path / "train" if (path / "train").is_dir() else path
    if not any(next(_with_pictures(folder), None) for folder in _folders(train)):
        return None
    held_out = next((path / name for name in HELD_OUT if (path / name).is_dir()), None)
    if train == path and held_out and _folders(held_out):
        raise SourceError(
            f"{path} has {held_out.name}/ but no train/ beside it",
            remedy="call the folder to learn from train/, with a folder a class in it",
        )
    if train != path and held_out is None:
        _check_beside_train(path)
    return Folder(path, train, None if train == path else held_out, size)


def _check_beside_train(path: Path) -> None:
    """Pictures that somebody held out, under another name than those known here, would go unused without a word."""
    named = [each for each in _folders(path) if each.name.casefold() in levels.BESIDE_TRAIN - {"train", "training"}]
    if found := next((each for each in named if next(_with_pictures(each), None)), None):
        raise SourceError(
            f"{path} has {found.name}/ beside train/: held-out pictures are looked for in val/ or test/",
            remedy=f"call {found.name}/ val/, or move it away to go without held-out pictures",
        )


class Folder:
    format = "folders of pictures"

    def __init__(self, root: Path, train: Path, held_out: Path | None, size: int) -> None:
        self.class_names = tuple(folder.name for folder in _folders(train))
        if len(self.class_names) > MAX_CLASSES:
            raise SourceError(f"{train} has {len(self.class_names)} classes: at most {MAX_CLASSES} can be told apart")
        self.shape = (size, size, 3)
        self._root, self._size = root, size
        learned = _listed(train)
        levels.check(root, train, (each for inside in learned.values() for each in inside))
        judged = _listed(held_out) if held_out else {}
        if held_out:
            _check_held_out(held_out, judged, self.class_names)
        self._train = self._part(train, learned, learned=True)
        self._test = self._part(held_out, judged, learned=False) if held_out else Part()

    def train(self) -> Iterator[Block]:
        pictures = self._train.pictures
        order = rng.permutation((ORDER,), len(pictures))
        yield from self._decoded([pictures[place] for place in order])
        yield from self._unread(self._train)

    def test(self) -> Iterator[Block]:
        yield from self._decoded(self._test.pictures)
        yield from self._unread(self._test)

    def records(self) -> int:
        return sum(len(part.pictures) + len(part.damaged) for part in (self._train, self._test))

    def counts(self) -> tuple[int, int]:
        return len(self._train.pictures), len(self._test.pictures)

    def known_damage(self) -> list[Damage]:
        return [*self._train.damaged, *self._test.damaged]

    def _part(self, directory: Path, listed: Mapping[Path, Listing], *, learned: bool) -> Part:
        """`learned`: then every class must have pictures; held out, some may have none."""
        numbers = {name: label for label, name in enumerate(self.class_names)}
        pictures: list[Picture] = []
        damaged = [self._damage(path, "it lies in no class's folder") for path in _loose(directory)]
        for folder, inside in listed.items():
            good: list[Path] = []
            bad: list[Path] = []
            for path in chain.from_iterable(inside.values()):
                (good if _is_picture(path) else bad).append(path)
            if not good and (bad or learned):
                raise _without_pictures(folder, bad)
            pictures += [Picture(path, numbers[folder.name]) for path in good]
            damaged += [self._damage(path, _why_not(path)) for path in bad]
        return Part(pictures, damaged)

    def _damage(self, path: Path, reason: str) -> Damage:
        return Damage(str(path.relative_to(self._root)), -1, reason)

    def _unread(self, part: Part) -> Iterator[Block]:
        if part.damaged:
            yield Block(np.empty((0, *self.shape), np.uint8), np.empty(0, np.int64), part.damaged)

    def _decoded(self, pictures: Sequence[Picture]) -> Iterator[Block]:
        chunks = [pictures[start : start + CHUNK] for start in range(0, len(pictures), CHUNK)]
        workers = len(os.sched_getaffinity(0))
        if len(chunks) <= 1 or workers == 1:
            yield from (_decode_all(chunk, self._root, self._size) for chunk in chunks)
            return
        try:
            yield from self._decoded_by(workers, chunks)
        except BrokenProcessPool:
            raise ClusterctlError(
                f"a process that decoded pictures of {self._root} was killed", remedy="free some memory and try again"
            ) from None

    def _decoded_by(self, workers: int, chunks: list[Sequence[Picture]]) -> Iterator[Block]:
        with ProcessPoolExecutor(workers) as pool:
            waiting = []
            for chunk in chunks:  # a few ahead: all at once would hold every picture in memory
                waiting.append(pool.submit(_decode_all, chunk, self._root, self._size))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            yield from (each.result() for each in waiting)


def _folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def _listed(directory: Path) -> dict[Path, Listing]:
    """What is in each class's folder, in whatever folders it lies there."""
    return {folder: dict(_with_pictures(folder)) for folder in _folders(directory)}


def _with_pictures(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    for here, _, names in walk(folder, hidden=False, onerror=_tell):
        if found := [path for name in names if _looks_like_a_picture(path := here / name)]:
            yield here, found


def _tell(error: OSError) -> None:
    """What may not be read is not left out."""
    raise error


def _loose(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if _looks_like_a_picture(path) and not path.is_dir())


def _looks_like_a_picture(path: Path) -> bool:
    return path.suffix.lower() in LIKELY and not path.name.startswith(".")


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and path.is_file()


def _why_not(path: Path) -> str:
    ending = path.suffix.lower()
    return f"only JPEG and PNG are read, not {ending}" if ending in OTHER_ENDINGS else "it is no file"


def _check_held_out(directory: Path, listed: Mapping[Path, Listing], class_names: Sequence[str]) -> None:
    """Without a class nobody can judge by a picture: left out quietly, the run would end without having been judged."""
    without = f"or move {directory.name}/ away, to go without held-out pictures"
    if loose := _loose(directory):
        raise SourceError(
            f"{directory} has pictures that lie in no class's folder, such as {loose[0].name}: "
            "nothing says what they show",
            remedy=f"move each into {directory.name}/CLASS/ (for ImageNet's val/ valprep.sh does), {without}",
        )
    if not any(listed.values()):
        raise SourceError(f"{directory} holds no pictures", remedy=f"put some into {directory.name}/CLASS/, {without}")
    if unknown := [folder.name for folder in listed if folder.name not in class_names]:
        raise SourceError(f"{directory} has classes that train/ has not: {', '.join(unknown[:5])}")


def _without_pictures(folder: Path, bad: Sequence[Path]) -> SourceError:
    if bad:
        return SourceError(
            f"{folder} holds no picture that can be read; {bad[0].name}: {_why_not(bad[0])}",
            remedy="convert its pictures to JPEG or PNG",
        )
    return SourceError(
        f"{folder} holds no picture: a class of none cannot be learned",
        remedy="put its pictures there, or move the folder away",
    )


def _decode_all(pictures: Sequence[Picture], root: Path, size: int) -> Block:
    images, labels, damaged = [], [], []
    for picture in pictures:
        try:
            images.append(decode(picture.path, size))
            labels.append(picture.label)
        except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
            reason = " ".join(str(error).split()) or type(error).__name__
            damaged.append(Damage(str(picture.path.relative_to(root)), -1, reason.replace(f"{root}/", "")))
    stacked = np.stack(images) if images else np.empty((0, size, size, 3), np.uint8)
    return Block(stacked, np.array(labels, np.int64), damaged)


def decode(path: Path, size: int) -> Images:
    """As a person sees it: upright, in RGB; its short side becomes `size`, and the middle is kept."""
    import warnings

    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.simplefilter("ignore", UserWarning)  # odd metadata of a picture that can be seen all the same
        with Image.open(path, formats=("JPEG", "PNG")) as opened:
            if max(opened.size) * size * size > MOST_PIXELS * min(opened.size):
                width, height = opened.size
                raise ValueError(f"{width}x{height} pixels: too long for its short side to become {size}")
            if opened.format == "JPEG":
                opened.draft("RGB", (2 * size, 2 * size))  # decodes fewer pixels where that is enough
            upright = ImageOps.exif_transpose(opened)
    picture = _rgb(upright)
    width, height = picture.size
    scale = size / min(width, height)
    shrunk = picture.resize(
        (max(size, round(width * scale)), max(size, round(height * scale))), Image.Resampling.BICUBIC
    )
    left, top = (shrunk.width - size) // 2, (shrunk.height - size) // 2
    return np.asarray(shrunk.crop((left, top, left + size, top + size)), np.uint8)


def _rgb(picture: Image.Image) -> Image.Image:
    """What shines through is white, as on a page."""
    from PIL import Image

    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        over = picture.convert("RGBA")
        page = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(page, over).convert("RGB")
    if picture.mode.startswith("I"):  # 16 bits a pixel; converted, all of it would be white
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
    return picture.convert("RGB")
