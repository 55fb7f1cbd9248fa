"""A small dataset in the format of the MNIST family."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from phone_agent.data.synthetic import Synthetic

SIDE, CLASSES = 28, 10


def write_idx(directory: Path, train: int, test: int, side: int = SIDE) -> None:
    directory.mkdir()
    images, labels = Synthetic(train + test, (side, side, 1), CLASSES, seed=0).take(np.arange(train + test))
    for name, part in (("train", slice(0, train)), ("t10k", slice(train, None))):
        pixels, classes = images[part, :, :, 0].astype(np.uint8), labels[part].astype(np.uint8)
        header = struct.pack(">BBBB3I", 0, 0, 8, 3, len(pixels), side, side)
        (directory / f"{name}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = struct.pack(">BBBBI", 0, 0, 8, 1, len(classes))
        (directory / f"{name}-labels-idx1-ubyte").write_bytes(header + classes.tobytes())


def relabel(directory: Path, part: str, labels: dict[int, int]) -> None:
    path = directory / f"{part}-labels-idx1-ubyte"
    raw = bytearray(path.read_bytes())
    for index, label in labels.items():
        raw[8 + index] = label
    path.write_bytes(raw)
