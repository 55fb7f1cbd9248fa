"""Image folders, one per class: train/CLASS/*.jpg and val/CLASS/*.jpg as in ImageNet, or just CLASS/*.jpg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.data.sources import levels
from orchestrator.data.sources.source import Block, CorruptRecord, Images, SourceError
from orchestrator.data.walk import walk
from orchestrator.errors import ClusterctlError
from phone_agent.contract import rng
from phone_agent.contract.shards import MAX_CLASSES

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png"}
UNSUPPORTED_SUFFIXES = {  # reported, because users would expect these images to be used
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".pgm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip
IMAGE_SUFFIXES = SUFFIXES | UNSUPPORTED_SUFFIXES
HELD_OUT = ("val", "test")
MAX_PIXELS = 200_000_000  # per image; more is a decompression bomb
MAX_PICTURE_BYTES = 256 << 20  # of the file
MAX_DECODED_PIXELS = 40_000_000  # if it has to be decoded in full, at up to 6 bytes per pixel
CHUNK = 64
SHUFFLE_SEED = 20_260_131  # images are stored in a fixed random order, so that every shard has all classes

Listing = Mapping[Path, Sequence[Path]]  # image files by directory


@dataclass(frozen=True)
class Picture:
    path: Path
    label: int


@dataclass(frozen=True)
class Split:
    """The training or test images, and the files that look like images but cannot be used."""

    pictures: Sequence[Picture] = ()
    damaged: Sequence[CorruptRecord] = ()


def recognize(path: Path, size: int) -> Folder | None:
    if not path.is_dir():
        return None
    train = path / "train" if (path / "train").is_dir() else path
    if not any(next(_with_pictures(folder), None) for folder in _folders(train)):
        return None
    held_out = next((path / name for name in HELD_OUT if (path / name).is_dir()), None)
    if train == path and held_out and _folders(held_out):
        raise SourceError(
            f"{path} has {held_out.name}/ but no train/",
            remedy="name the training folder train/, with one folder per class",
        )
    if train != path and held_out is None:
        _check_beside_train(path)
    return Folder(path, train, None if train == path else held_out, size)


def _check_beside_train(path: Path) -> None:
    """Reject held-out images under an unknown folder name, which would silently be ignored."""
    named = [each for each in _folders(path) if each.name.casefold() in levels.BESIDE_TRAIN - {"train", "training"}]
    if found := next((each for each in named if next(_with_pictures(each), None)), None):
        raise SourceError(
            f"{path} has {found.name}/ next to train/; held-out images must be in val/ or test/",
            remedy=f"rename {found.name}/ to val/, or move it away to import without held-out images",
        )


class Folder:
    format = "image folders"

    def __init__(self, root: Path, train: Path, held_out: Path | None, size: int) -> None:
        self.class_names = tuple(folder.name for folder in _folders(train))
        if len(self.class_names) > MAX_CLASSES:
            raise SourceError(f"{train} has {len(self.class_names)} classes: the maximum is {MAX_CLASSES}")
        self.shape = (size, size, 3)
        self._root, self._size = root, size
        train_files = _listed(train)
        levels.check(root, train, (each for inside in train_files.values() for each in inside))
        test_files = _listed(held_out) if held_out else {}
        if held_out:
            _check_held_out(held_out, test_files, self.class_names)
        self._train = self._part(train, train_files, is_training=True)
        self._test = self._part(held_out, test_files, is_training=False) if held_out else Split()

    def train(self) -> Iterator[Block]:
        pictures = self._train.pictures
        order = rng.permutation((SHUFFLE_SEED,), len(pictures))
        yield from self._decoded([pictures[place] for place in order])
        yield from self._unread(self._train)

    def test(self) -> Iterator[Block]:
        yield from self._decoded(self._test.pictures)
        yield from self._unread(self._test)

    def records(self) -> int:
        return sum(len(part.pictures) + len(part.damaged) for part in (self._train, self._test))

    def counts(self) -> tuple[int, int]:
        return len(self._train.pictures), len(self._test.pictures)

    def known_corruption(self) -> list[CorruptRecord]:
        return [*self._train.damaged, *self._test.damaged]

    def _part(self, directory: Path, listed: Mapping[Path, Listing], *, is_training: bool) -> Split:
        """In the training split every class must have images; in the test split some may have none."""
        numbers = {name: label for label, name in enumerate(self.class_names)}
        pictures: list[Picture] = []
        damaged = [self._corrupt(path, "not inside a class folder") for path in _loose(directory)]
        for folder, inside in listed.items():
            good: list[Path] = []
            bad: list[Path] = []
            for path in chain.from_iterable(inside.values()):
                (good if _is_supported(path) else bad).append(path)
            if not good and (bad or is_training):
                raise _without_pictures(folder, bad)
            pictures += [Picture(path, numbers[folder.name]) for path in good]
            damaged += [self._corrupt(path, _reason(path)) for path in bad]
        return Split(pictures, damaged)

    def _corrupt(self, path: Path, reason: str) -> CorruptRecord:
        return CorruptRecord(str(path.relative_to(self._root)), -1, reason)

    def _unread(self, part: Split) -> Iterator[Block]:
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
                f"a process decoding images from {self._root} was killed", remedy="free some memory and try again"
            ) from None

    def _decoded_by(self, workers: int, chunks: list[Sequence[Picture]]) -> Iterator[Block]:
        with ProcessPoolExecutor(workers) as pool:
            waiting = []
            for chunk in chunks:  # bounded look-ahead, to limit memory
                waiting.append(pool.submit(_decode_all, chunk, self._root, self._size))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            yield from (each.result() for each in waiting)


def _folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def _listed(directory: Path) -> dict[Path, Listing]:
    """Image files of each class folder, at any depth."""
    return {folder: dict(_with_pictures(folder)) for folder in _folders(directory)}


def _with_pictures(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    for here, _, names in walk(folder, hidden=False, onerror=_raise):
        if found := [path for name in names if _has_image_suffix(path := here / name)]:
            yield here, found


def _raise(error: OSError) -> None:
    """Unreadable directories are errors, not skipped."""
    raise error


def _loose(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if _has_image_suffix(path) and not path.is_dir())


def _has_image_suffix(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def _is_supported(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _reason(path: Path) -> str:
    ending = path.suffix.lower()
    return (
        f"unsupported format {ending}; only JPEG and PNG are supported"
        if ending in UNSUPPORTED_SUFFIXES
        else "not a regular file"
    )


def _check_held_out(directory: Path, listed: Mapping[Path, Listing], class_names: Sequence[str]) -> None:
    """Reject test images without a class; silently ignoring them would leave the run without an evaluation."""
    without = f"or move {directory.name}/ away to import without held-out images"
    if loose := _loose(directory):
        raise SourceError(
            f"{directory} has images outside class folders, such as {loose[0].name}: their class is unknown",
            remedy=f"move each into {directory.name}/CLASS/ (for ImageNet's val/ valprep.sh does), {without}",
        )
    if not any(listed.values()):
        raise SourceError(f"{directory} has no images", remedy=f"put some into {directory.name}/CLASS/, {without}")
    if unknown := [folder.name for folder in listed if folder.name not in class_names]:
        raise SourceError(f"{directory} has classes that are missing in train/: {', '.join(unknown[:5])}")


def _without_pictures(folder: Path, bad: Sequence[Path]) -> SourceError:
    if bad:
        return SourceError(
            f"{folder} has no readable image; {bad[0].name}: {_reason(bad[0])}",
            remedy="convert its images to JPEG or PNG",
        )
    return SourceError(
        f"{folder} has no images; every class needs some",
        remedy="add images, or move the folder away",
    )


def _decode_all(pictures: Sequence[Picture], root: Path, size: int) -> Block:
    images, labels, damaged = [], [], []
    for picture in pictures:
        try:
            images.append(decode(picture.path, size))
            labels.append(picture.label)
        except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
            reason = " ".join(str(error).split()) or type(error).__name__
            damaged.append(CorruptRecord(str(picture.path.relative_to(root)), -1, reason.replace(f"{root}/", "")))
    stacked = np.stack(images) if images else np.empty((0, size, size, 3), np.uint8)
    return Block(stacked, np.array(labels, np.int64), damaged)


def decode(path: Path, size: int) -> Images:
    """Decode to RGB with EXIF orientation applied, resize the short side to `size`, and center-crop."""
    import warnings

    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.simplefilter("ignore", UserWarning)  # odd metadata in an otherwise valid image
        with Image.open(_read_bytes(path), formats=("JPEG", "PNG")) as opened:
            width, height = opened.size
            if max(opened.size) * size * size > MAX_PIXELS * min(opened.size):
                raise ValueError(f"{width}x{height} pixels: aspect ratio too extreme for size {size}")
            if width * height > MAX_DECODED_PIXELS and (opened.format != "JPEG" or "progressive" in opened.info):
                raise ValueError(
                    f"{width}x{height} pixels: at most {MAX_DECODED_PIXELS // 1_000_000} million in this format"
                )
            if opened.format == "JPEG":
                opened.draft("RGB", (2 * size, 2 * size))  # decode at reduced resolution where that is enough
            upright = ImageOps.exif_transpose(opened)
    picture = _rgb(upright)
    width, height = picture.size
    scale = size / min(width, height)
    shrunk = picture.resize(
        (max(size, round(width * scale)), max(size, round(height * scale))), Image.Resampling.BICUBIC
    )
    left, top = (shrunk.width - size) // 2, (shrunk.height - size) // 2
    return np.asarray(shrunk.crop((left, top, left + size, top + size)), np.uint8)


def _read_bytes(path: Path) -> BytesIO:
    """Into memory: a decoder that asks a file for as many bytes as a header claims allocates them."""
    if path.stat().st_size > MAX_PICTURE_BYTES:
        raise ValueError(f"larger than {MAX_PICTURE_BYTES >> 20} MiB")
    return BytesIO(path.read_bytes())


def _rgb(picture: Image.Image) -> Image.Image:
    """Convert to RGB; transparent pixels become white."""
    from PIL import Image

    if picture.mode.startswith("I"):
        return _from_16_bits(picture)
    if picture.mode in {"RGBA", "LA", "PA"} or "transparency" in picture.info:
        over = picture.convert("RGBA")
        page = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(page, over).convert("RGB")
    return picture.convert("RGB")


def _from_16_bits(picture: Image.Image) -> Image.Image:
    """A grayscale image with 16 bits per pixel. Pillow's own conversion clips it to white."""
    from PIL import Image

    pixels = np.asarray(picture)
    gray = (pixels >> 8).astype(np.uint8)
    gray[pixels == picture.info.get("transparency")] = 255
    return Image.fromarray(gray).convert("RGB")
