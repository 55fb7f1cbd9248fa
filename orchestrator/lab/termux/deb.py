"""Reproducible Debian packages: the same content gives the same bytes."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterable
from hashlib import md5
from pathlib import PurePosixPath
from typing import Self

from orchestrator.lab.termux.catalog import Package, paragraph
from orchestrator.lab.termux.contents import Entry, installed_kib, maintainer_scripts
from orchestrator.lab.termux.layout import TERMUX_PREFIX, TermuxLayout

_XZ = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 20}]


def build_deb(package: Package, entries: list[Entry], layout: TermuxLayout) -> bytes:
    """Build a .deb: an `ar` archive of two tars, with all files owned by root and dated 1970."""
    return _ar(
        {
            "debian-binary": b"2.0\n",
            "control.tar.xz": _control(package, entries, layout),
            "data.tar.xz": _data(entries),
        }
    )


def conffiles(package: Package) -> str:
    return "".join(f"{TERMUX_PREFIX}/{path}\n" for path in package.conffiles)


def md5sums(entries: Iterable[Entry]) -> str:
    prefix = TERMUX_PREFIX.relative_to("/")
    return "".join(f"{_md5(entry.data)}  {prefix}/{entry.path}\n" for entry in entries if entry.link is None)


def directories(entries: Iterable[Entry]) -> list[PurePosixPath]:
    """All parent directories of the entries, parents first."""
    found = {parent for entry in entries for parent in (TERMUX_PREFIX / entry.path).parents}
    return sorted(found)


def _md5(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def _control(package: Package, entries: list[Entry], layout: TermuxLayout) -> bytes:
    members: dict[str, bytes] = {
        "control": paragraph(package.control(installed_kib(entries))).encode(),
        "md5sums": md5sums(entries).encode(),
        **maintainer_scripts(package, layout),
    }
    if package.conffiles:
        members["conffiles"] = conffiles(package).encode()
    with _Tar() as tar:
        for name, data in sorted(members.items()):
            tar.add_file(f"./{name}", data, 0o755 if data.startswith(b"#!") else 0o644)
    return tar.compressed()


def _data(entries: list[Entry]) -> bytes:
    with _Tar() as tar:
        for directory in directories(entries):
            tar.add_directory(f".{directory}")
        for entry in entries:
            tar.add_entry(f".{TERMUX_PREFIX}/{entry.path}", entry)
    return tar.compressed()


class _Tar:
    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115 (closed in __exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def add_directory(self, name: str) -> None:
        self._add(name, tarfile.DIRTYPE, 0o755)

    def add_file(self, name: str, data: bytes, mode: int) -> None:
        self._add(name, tarfile.REGTYPE, mode, data=data)

    def add_entry(self, name: str, entry: Entry) -> None:
        if entry.link is None:
            self.add_file(name, entry.data, entry.mode)
        else:
            self._add(name, tarfile.SYMTYPE, 0o777, link=entry.link)

    def compressed(self) -> bytes:
        return lzma.compress(self._buffer.getvalue(), filters=_XZ)

    def _add(self, name: str, kind: bytes, mode: int, data: bytes = b"", link: str = "") -> None:
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.size, member.linkname = kind, mode, len(data), link
        member.uname = member.gname = "root"
        self._tar.addfile(member, io.BytesIO(data))


def _ar(members: dict[str, bytes]) -> bytes:
    packed = b"!<arch>\n"
    for name, data in members.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        packed += header.encode() + data + b"\n" * (len(data) % 2)
    return packed
