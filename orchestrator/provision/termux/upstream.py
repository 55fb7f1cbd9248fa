"""A remote package repository, verified through its chain of sha256 sums: Release -> Packages -> packages.

`Release` itself is trusted because of its transport: only https and local paths are allowed.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from orchestrator.decompress import ERRORS, decompress
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.provision.termux.index import Package, parse_fields

_TRUSTED_SCHEMES: Final = frozenset({"https", "file"})
_TIMEOUT: Final = 30.0
_CHUNK: Final = 1 << 20
_MAX_INDEX_BYTES: Final = 256 << 20
_SUFFIXES: Final = (".xz", ".gz", "")


class UpstreamError(ClusterctlError):
    """The repository cannot be reached, or its files do not match their sha256."""


@dataclass(frozen=True)
class IndexEntry:
    """One line of `Release`: an index file with its size and sha256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Upstream:
    url: str

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _TRUSTED_SCHEMES:
            raise UsageError(
                f"{self.url} is neither https:// nor file://, so its Release file cannot be trusted",
                remedy="clusterctl provision --upstream https://packages-cf.termux.dev/apt/termux-main",
            )

    def index_entry(self, arch: str) -> IndexEntry:
        """The entry of the package index of an architecture in `Release`."""
        listed = release_sums(self._read("dists/stable/Release", limit=1 << 20).decode(errors="replace"))
        for suffix in _SUFFIXES:
            if found := listed.get(f"main/binary-{arch}/Packages{suffix}"):
                return found
        raise UpstreamError(
            f"{self.url} has no packages for {arch}",
            remedy="use another repository: clusterctl provision --upstream URL",
        )

    def index(self, entry: IndexEntry) -> str:
        raw = self._read(f"dists/stable/{entry.path}", limit=_MAX_INDEX_BYTES)
        if hashlib.sha256(raw).hexdigest() != entry.sha256:
            raise UpstreamError(
                f"{self.url}: {entry.path} does not match its sha256 in Release",
                remedy="run the command again: the repository may have been updated in the meantime",
            )
        try:
            return decompress(raw).decode()
        except (*ERRORS, ValueError) as error:
            raise UpstreamError(
                f"{self.url}: {entry.path} cannot be read: {error}", remedy="use another repository: --upstream URL"
            ) from None

    def download(self, package: Package, target: Path) -> None:
        """Download atomically, resuming an earlier partial download (`target`.part)."""
        part = target.with_name(target.name + ".part")
        self._fetch_into(part, package)
        if (found := _sha256(part)) != package.sha256:
            part.unlink()
            raise UpstreamError(
                f"{package.name} {package.version} from {self.url} has sha256 {found[:12]}…, "
                f"the index says {package.sha256[:12]}…",
                remedy="run the command again; if it fails again, choose another repository with --upstream",
            )
        part.replace(target)

    def _fetch_into(self, part: Path, package: Package) -> None:
        have = part.stat().st_size if part.exists() else 0
        if have == package.size:
            return
        with self._open(package.filename, start=have) as source:
            resumed = getattr(source, "status", None) == 206
            with part.open("ab" if resumed else "wb") as sink:
                _copy(source, sink, limit=package.size)

    def _read(self, path: str, limit: int) -> bytes:
        with self._open(path) as source:
            raw: bytes = source.read(limit + 1)
        if len(raw) > limit:
            raise UpstreamError(f"{self.url}: {path} is larger than {limit >> 20} MiB")
        return raw

    def _open(self, path: str, start: int = 0) -> IO[bytes]:
        request = urllib.request.Request(f"{self.url.rstrip('/')}/{path}")  # noqa: S310  https or file, checked above
        if start:
            request.add_header("Range", f"bytes={start}-")
        try:
            source: IO[bytes] = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
        except (urllib.error.URLError, OSError) as error:
            raise UpstreamError(
                f"cannot read {path} from {self.url}: {getattr(error, 'reason', error)}",
                remedy="check this computer's connection, or use an earlier snapshot: clusterctl provision --offline",
            ) from error
        if urlsplit(source.geturl()).scheme not in _TRUSTED_SCHEMES:  # type: ignore[attr-defined]
            raise UpstreamError(f"{self.url} redirects to an address that is not https")
        return source


def release_sums(release: str) -> dict[str, IndexEntry]:
    """The SHA256 section of a Release file."""
    lines = parse_fields(release).get("SHA256", "").splitlines()
    parts = [line.split() for line in lines if line.strip()]
    return {
        path: IndexEntry(path, int(size), sha256) for sha256, size, path in (part for part in parts if len(part) == 3)
    }


def _copy(source: IO[bytes], sink: IO[bytes], limit: int) -> None:
    while sink.tell() <= limit and (chunk := source.read(_CHUNK)):
        sink.write(chunk)
    sink.flush()
    os.fsync(sink.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
