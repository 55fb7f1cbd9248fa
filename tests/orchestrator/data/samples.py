"""Small files in the layouts that others publish."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NAMES10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
PIXELS = 3072


def planes(count: int, start: int = 0) -> NDArray[np.uint8]:
    return (np.arange(count * PIXELS).reshape(count, PIXELS) // 7 + start).astype(np.uint8)


def pixels(some: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As a dataset holds them."""
    return some.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def cifar10_binary(directory: Path, each: int = 4) -> Path:
    directory.mkdir()
    for number in range(6):
        records = np.concatenate([np.arange(each, dtype=np.uint8)[:, None] + number % 5, planes(each, number)], axis=1)
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        (directory / name).write_bytes(records.tobytes())
    (directory / "batches.meta.txt").write_text("\n".join(NAMES10) + "\n\n")
    return directory


def cifar100_binary(directory: Path, each: int = 4) -> Path:
    directory.mkdir()
    for name in ("train.bin", "test.bin"):
        labels = np.stack([np.zeros(each), np.arange(each) * 30], axis=1).astype(np.uint8)
        (directory / name).write_bytes(np.concatenate([labels, planes(each)], axis=1).tobytes())
    (directory / "fine_label_names.txt").write_text("\n".join(f"thing{i}" for i in range(100)))
    return directory


def cifar10_python(directory: Path, each: int = 4, protocol: int = 2) -> Path:
    directory.mkdir()
    for number in range(6):
        name = f"data_batch_{number + 1}" if number < 5 else "test_batch"
        content = {
            b"batch_label": f"batch {number} of 5".encode(),
            b"labels": [(label + number) % 5 for label in range(each)],
            b"data": planes(each, number),
            b"filenames": [f"{label}.png".encode() for label in range(each)],
        }
        (directory / name).write_bytes(pickled(content, protocol))
    meta = {b"num_cases_per_batch": each, b"label_names": [name.encode() for name in NAMES10], b"num_vis": PIXELS}
    (directory / "batches.meta").write_bytes(pickled(meta, protocol))
    return directory


def pickled(content: Any, protocol: int = 2) -> bytes:
    return pickle.dumps(content, protocol)


def archive(source: Path, target: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(target, mode) as made:  # type: ignore[call-overload]
        made.add(source, source.name)
    return target


def hostile_archive(target: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    with tarfile.open(target, "w:gz") as made:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            made.addfile(member, io.BytesIO(content))
    return target


def picture(path: Path, mode: str = "RGB", color: Any = "red") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (40, 30), color).save(path)
