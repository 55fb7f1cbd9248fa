"""IDX, the format of the MNIST family: two zero bytes, a type, the dimensions, then the numbers."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phone_agent.data import Images
from phone_agent.errors import AgentError

UNSIGNED_BYTE = 8


def read_images_and_labels(images: Path, labels: Path) -> tuple[Images, NDArray[np.uint8]]:
    """Images as NHWC with one channel, and their labels."""
    pixels, classes = read_idx(images), read_idx(labels)
    if pixels.ndim != 3 or classes.ndim != 1 or len(pixels) != len(classes):
        raise AgentError(f"{images} {pixels.shape} and {labels} {classes.shape} are not images and their labels")
    return pixels[..., None], classes


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array; the file may be gzipped."""
    raw = _content(path)
    if len(raw) < 4 or raw[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise AgentError(f"{path} is not an IDX file of unsigned bytes")
    header = 4 + 4 * raw[3]
    if len(raw) < header:
        raise AgentError(f"{path} is damaged: it ends within its header")
    shape = tuple(int(size) for size in np.frombuffer(raw[4:header], ">u4"))
    if len(raw) != header + prod(shape):
        raise AgentError(f"{path} is damaged: {len(raw)} bytes do not hold {shape}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise AgentError(f"{path} cannot be read: {error}") from None
