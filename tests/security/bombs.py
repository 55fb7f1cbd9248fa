"""Small files that would grow to hundreds of megabytes, and the readers that must reject them.

`python -m tests.security.bombs KIND PATH` reads one in a fresh process and prints by how many bytes its memory grew.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import resource
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HUGE = 256 << 20
_PIECE = bytes(1 << 20)


@dataclass(frozen=True)
class Bomb:
    file: str
    write: Callable[[Path], None]
    read: Callable[[Path], object]


def _npz(path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % HUGE
    header = header.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("w.npy", "w") as member:
        member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        for _ in range(HUGE // len(_PIECE)):
            member.write(_PIECE)


def _tar(path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=9) as archive:
        for name in ("data_batch_1.bin", "test_batch.bin"):
            member = tarfile.TarInfo(name)
            member.size = HUGE
            archive.addfile(member, _Zeros())


def _tar_with_long_header(path: Path) -> None:
    """Python's tarfile reads an extended header into memory before its caller sees the member."""
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, HUGE
    with gzip.open(path, "wb") as file:
        file.write(member.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(HUGE // len(_PIECE)):
            file.write(_PIECE)


def _idx(path: Path) -> None:
    path.mkdir()
    for part in ("train", "t10k"):
        with gzip.open(path / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes((0, 0, 8, 3)) + struct.pack(">III", HUGE >> 10, 32, 32))
            for _ in range(HUGE // len(_PIECE)):
                file.write(_PIECE)
        (path / f"{part}-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + bytes(1))


def _png(path: Path) -> None:
    """A black image of 9000 x 9000 pixels, which takes 324 MB decoded."""
    side = 9_000
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b""))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pickle(path: Path) -> None:
    """Encodes the same text a thousand times."""
    text = b"B" + struct.pack("<I", 400_000) + bytes(400_000) + b"q\x01"
    encode = b"c_codecs\nencode\nh\x01U\x06latin1\x86R"
    path.write_bytes(b"\x80\x02}" + b"U\x01a](" + text + encode * 1000 + b"es.")


class _Zeros(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        return bytes(size)


def _read_npz(path: Path) -> object:
    from orchestrator.inference.model import read_weights

    return read_weights(path)


def _read_source(path: Path) -> object:
    from orchestrator.data.sources import recognize

    return recognize(path, 32)


def _read_picture(path: Path) -> object:
    from orchestrator.data.sources.folder import decode

    return decode(path, 32)


def _read_pickle(path: Path) -> object:
    from orchestrator.data.sources.pickled import read

    return read(path.read_bytes())


BOMBS = {
    "npz": Bomb("w.npz", _npz, _read_npz),
    "tar": Bomb("cifar.tar.gz", _tar, _read_source),
    "tar with a long header": Bomb("cifar.tar.gz", _tar_with_long_header, _read_source),
    "idx": Bomb("dots", _idx, _read_source),
    "png": Bomb("black.png", _png, _read_picture),
    "pickle": Bomb("data_batch_1", _pickle, _read_pickle),
}


def main() -> int:
    kind, path = sys.argv[1:]
    read = BOMBS[kind].read
    with contextlib.suppress(Exception):
        read(Path("/nonexistent"))  # imports everything that it needs
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read(Path(path))
    except Exception as error:  # noqa: BLE001 - its class is printed, and checked by the test
        outcome = type(error).__name__
    else:
        outcome = "accepted"
    sys.stdout.write(f"{outcome} {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
