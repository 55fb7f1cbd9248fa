"""Our own repository: one closure of packages, downloaded, verified, and the same for every phone.

termux/<arch>/indexes/<sha256>   upstream indexes as they came, by their sum
termux/<arch>/pool/              packages, shared by all snapshots
termux/<arch>/<id>/              a repository; its id is the hash of its index
termux/<arch>/latest.json        the snapshot made last, by upstream: what to use when that is out of reach
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orchestrator.provision.termux.closure import closure
from orchestrator.provision.termux.index import Index, Package, parse_packages
from orchestrator.provision.termux.upstream import Listing, Upstream, UpstreamError

_DOWNLOADS_AT_ONCE: Final = 8
_ATTEMPTS: Final = 2
_KEPT: Final = 6
_IN_USE_SECONDS: Final = 6 * 3600.0  # younger ones may belong to a provision that is under way

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Snapshot:
    sha256: str  # of its index, uncompressed
    arch: str
    root: Path  # what the mirror serves; the repository is the directory <id> below it
    index: Index
    fresh: bool = True  # False: upstream was not asked, or did not answer

    @property
    def id(self) -> str:
        return _id(self.sha256)

    @property
    def path(self) -> Path:
        return self.root / self.id


class SnapshotStore:
    def __init__(self, cache: Path, arch: str, upstream: Upstream) -> None:
        self._root = cache / "termux" / arch
        self._arch = arch
        self._upstream = upstream

    def take(self, wanted: Iterable[str], installed: Iterable[str], progress: Progress) -> Snapshot:
        """A snapshot with the wanted packages and newer ones of what is installed; no download twice."""
        planned = self.plan(wanted, installed, progress)
        self._download([package for package in planned.index if not self._pool_file(package).exists()], progress)
        self._write_repository(planned.id, self._packages_text(planned.index))
        self._remember(planned.id)
        self._prune()
        return planned

    def plan(self, wanted: Iterable[str], installed: Iterable[str], progress: Progress) -> Snapshot:
        """What `take` would take; nothing but the index is downloaded."""
        index = self._upstream_index(progress)
        chosen = closure(index, {*wanted, *(name for name in installed if name in index)})
        return Snapshot(hashlib.sha256(self._packages_text(chosen)).hexdigest(), self._arch, self._root, chosen)

    def latest(self) -> Snapshot | None:
        """The snapshot made last from this upstream, if it is still whole."""
        try:
            name = json.loads((self._root / "latest.json").read_text())[self._upstream.url]
            data = (self._index_dir(name) / "Packages").read_bytes()
            index = parse_packages(data.decode())
        except (OSError, ValueError, KeyError):
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        if _id(sha256) != name or not all(self._pool_file(package).exists() for package in index):
            return None
        return Snapshot(sha256, self._arch, self._root, index, fresh=False)

    def _upstream_index(self, progress: Progress) -> Index:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return parse_packages(self._read_index(self._upstream.listing(self._arch), progress))
            except UpstreamError:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _read_index(self, listing: Listing, progress: Progress) -> str:
        kept = self._root / "indexes" / listing.sha256
        if not kept.exists():
            progress(f"reading the package index of {self._upstream.url}")
            _write_atomically(kept, self._upstream.index(listing).encode())
        return kept.read_text()

    def _packages_text(self, packages: Index) -> bytes:
        stanzas = (package.stanza(Filename=f"pool/{self._pool_file(package).name}") for package in packages)
        return "\n".join(stanzas).encode()

    def _download(self, packages: list[Package], progress: Progress) -> None:
        if not packages:
            return
        (self._root / "pool").mkdir(parents=True, exist_ok=True)
        megabytes = sum(package.size for package in packages) / 1e6
        progress(f"downloading {len(packages)} packages, {megabytes:.1f} MB")
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
            list(pool.map(lambda package: self._upstream.download(package, self._pool_file(package)), packages))

    def _pool_file(self, package: Package) -> Path:
        return self._root / "pool" / f"{package.name}_{package.sha256[:24]}.deb"

    def _index_dir(self, name: str) -> Path:
        return self._root / name / "dists" / "stable" / "main" / f"binary-{self._arch}"

    def _write_repository(self, name: str, packages: bytes) -> None:
        repository = self._root / name
        if (repository / "dists/stable/Release").exists():
            os.utime(repository / "dists")  # used again: as good as new
            return
        index = {"Packages": packages, "Packages.gz": gzip.compress(packages, mtime=0)}
        for file, data in index.items():
            _write_atomically(self._index_dir(name) / file, data)
        if not (pool := repository / "pool").is_symlink():
            pool.symlink_to("../pool")
        _write_atomically(repository / "dists/stable/Release", _release(self._arch, index).encode())

    def _remember(self, name: str) -> None:
        file = self._root / "latest.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        kept = {url: snapshot for url, snapshot in known.items() if not _is_gone(url)}
        _write_atomically(file, json.dumps({**kept, self._upstream.url: name}, indent=2).encode())

    def _prune(self) -> None:
        """Keeps the newest snapshots and the packages they hold; the cache does not grow for ever."""
        repositories = sorted(self._root.glob("*/dists"), key=_age)
        for dists in repositories[_KEPT:]:
            if _age(dists) > _IN_USE_SECONDS:
                shutil.rmtree(dists.parent)
        needed = {file for dists in repositories if dists.exists() for file in self._held(dists.parent.name)}
        for file in (self._root / "pool").glob("*.deb"):
            if file not in needed and _age(file) > _IN_USE_SECONDS:
                file.unlink(missing_ok=True)

    def _held(self, name: str) -> Iterator[Path]:
        yield from map(self._pool_file, parse_packages((self._index_dir(name) / "Packages").read_text()))


def _id(sha256: str) -> str:
    return sha256[:16]


def _is_gone(url: str) -> bool:
    """A lab's repository, after the lab."""
    parts = urlsplit(url)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _release(arch: str, index: dict[str, bytes]) -> str:
    sums = "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-{arch}/{name}\n" for name, data in index.items()
    )
    # A phone's clock may be years off, and apt refuses a repository from the future: this date has always passed.
    return (
        "Origin: clusterctl\nSuite: stable\nCodename: stable\nDate: Thu, 01 Jan 1970 00:00:00 UTC\n"
        f"Architectures: {arch}\nComponents: main\nSHA256:\n{sums}"
    )


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
