"""Copy files to a phone atomically: write to a temporary file, then rename.

Data is sent as the standard input of one command. For a large file this takes half the CPU of `sftp.put` and no more
time, and the same limits apply as for any other command. The scripts start few processes: on a phone each one counts.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from orchestrator.fleet.process import CHUNK_SIZE

# To the phone, a lost connection looks like end of input: check the length before the rename.
PUT = """
set -eu
new=$1.$$.part
trap 'rm -f -- "$new"' EXIT
[[ $1 != */* || -d ${1%/*} ]] || mkdir -p -- "${1%/*}"
umask 077
cat >"$new"
[ "$(stat -c %s -- "$new")" = "$2" ] || { echo "cut off" >&2; exit 1; }
[ "$3" = 600 ] || chmod -- "$3" "$new"
mv -fT -- "$new" "$1"
trap - EXIT
"""

# tar accepts an archive that is truncated between two members, so the last member is an end marker.
TREE_MARK = ".put-tree-is-complete"
PUT_TREE = """
set -eu
new=$1.$$.part
old=$1.$$.old
trap 'rm -rf -- "$new" "$old"' EXIT
mkdir -p -- "$new"
tar -x -f - -C "$new" --no-same-owner
rm -- "$new/$2"
if [ -e "$1" ] || [ -L "$1" ]; then mv -T -- "$1" "$old"; fi
mv -T -- "$new" "$1"
"""


def put_command(remote: PurePosixPath, size: int, mode: int) -> list[str]:
    return ["bash", "-c", PUT, "put", str(remote), str(size), f"{mode:o}"]


def tree_command(remote: PurePosixPath) -> list[str]:
    return ["bash", "-c", PUT_TREE, "put-tree", str(remote), TREE_MARK]


def content(path: Path, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes, as announced to the phone; a file that shrinks meanwhile is an error."""
    left = size
    with path.open("rb") as file:
        while left > 0:
            if not (chunk := file.read(min(CHUNK_SIZE, left))):
                raise OSError(f"{path} shrank while it was being copied")
            left -= len(chunk)
            yield chunk


def archive(root: Path) -> Iterator[bytes]:
    """A reproducible tar stream of `root`, generated while it is sent."""
    for path in sorted(root.rglob("*")):
        yield from _member(path, path.relative_to(root).as_posix())
    yield _header(tarfile.TarInfo(TREE_MARK))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(path: Path, name: str) -> Iterator[bytes]:
    """Files, directories and symlinks; sockets and other special files are skipped."""
    status = path.lstat()
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        member.size = status.st_size
        yield _header(member)
        yield from content(path, member.size)
        yield bytes(-member.size % tarfile.BLOCKSIZE)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        yield _header(member)
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115  (Path would tidy it up)
        yield _header(member)


def _header(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.GNU_FORMAT)
