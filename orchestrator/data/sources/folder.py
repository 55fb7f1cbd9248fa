"""Folders of pictures, one a class: train/CLASS/*.jpg and val/CLASS/*.jpg, as ImageNet, or only CLASS/*.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.data.sources.source import Block, Damage, Images, SourceError
from orchestrator.errors import ClusterctlError
from phone_agent import rng
from phone_agent.data.shards import MOST_CLASSES

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = {".jpg", ".jpeg", ".png"}
HELD_OUT = ("val", "test")
MOST_PIXELS = 200_000_000  # of one picture: more is a bomb
CHUNK = 64
ORDER = 20_260_131  # pictures are stored in a random order, always the same: any part of them is of all classes


@dataclass(frozen=True)
class Picture:
    path: Path
    label: int


def recognise(path: Path, size: int) -> Folder | None:
    train = path / "train" if (path / "train").is_dir() else path
    if not path.is_dir() or not any(_is_picture(each) for folder in _folders(train) for each in folder.iterdir()):
        return None
    held_out = next((path / name for name in HELD_OUT if train != path and (path / name).is_dir()), None)
    return Folder(path, train, held_out, size)


class Folder:
    format = "folders of pictures"

    def __init__(self, root: Path, train: Path, held_out: Path | None, size: int) -> None:
        self.class_names = tuple(folder.name for folder in _folders(train))
        if len(self.class_names) > MOST_CLASSES:
            raise SourceError(f"{train} has {len(self.class_names)} classes: at most {MOST_CLASSES} can be told apart")
        self.shape = (size, size, 3)
        self._root, self._size = root, size
        self._train = self._pictures(train)
        self._test = self._pictures(held_out) if held_out else []

    def train(self) -> Iterator[Block]:
        order = rng.permutation((ORDER,), len(self._train))
        yield from self._decoded([self._train[place] for place in order])

    def test(self) -> Iterator[Block]:
        yield from self._decoded(self._test)

    def records(self) -> int:
        return len(self._train) + len(self._test)

    def _pictures(self, directory: Path) -> list[Picture]:
        numbers = {name: label for label, name in enumerate(self.class_names)}
        if unknown := [folder.name for folder in _folders(directory) if folder.name not in numbers]:
            raise SourceError(f"{directory} has classes that train/ has not: {', '.join(unknown[:5])}")
        return [
            Picture(path, numbers[folder.name])
            for folder in _folders(directory)
            for path in sorted(folder.iterdir())
            if _is_picture(path)
        ]

    def _decoded(self, pictures: list[Picture]) -> Iterator[Block]:
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

    def _decoded_by(self, workers: int, chunks: list[list[Picture]]) -> Iterator[Block]:
        with ProcessPoolExecutor(workers) as pool:
            waiting = []
            for chunk in chunks:  # a few ahead: all at once would hold every picture in memory
                waiting.append(pool.submit(_decode_all, chunk, self._root, self._size))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            yield from (each.result() for each in waiting)


def _folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()


def _decode_all(pictures: list[Picture], root: Path, size: int) -> Block:
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
