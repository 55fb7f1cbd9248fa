"""Package snapshots: our own repository with one closure of packages, verified, and the same for every phone.

termux/<arch>/indexes/<sha256>   upstream indexes, by their sha256
termux/<arch>/pool/              packages, shared by all snapshots
termux/<arch>/<id>/              a repository; its id is the hash of its index
termux/<arch>/latest.json        the latest snapshot of each upstream, used when upstream is unreachable
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

from orchestrator.provision.termux.index import Index, Package, closure, parse_packages
from orchestrator.provision.termux.upstream import IndexEntry, Upstream, UpstreamError

_PARALLEL_DOWNLOADS: Final = 8
_ATTEMPTS: Final = 2
_KEEP_SNAPSHOTS: Final = 6
_IN_USE_SECONDS: Final = 6 * 3600.0  # younger snapshots may belong to a running provision

OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class Snapshot:
    sha256: str  # of its index, uncompressed
    arch: str
    root: Path  # served by the mirror; the repository is the directory <id> in it
    index: Index
    fresh: bool = True  # False: an earlier snapshot, not compared with upstream

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

    def create(self, required: Iterable[str], optional: Iterable[str], on_message: OnMessage) -> Snapshot:
        """Make a snapshot with the required packages, and the optional ones that upstream has."""
        planned = self.plan(required, optional, on_message)
        self._download([package for package in planned.index if not self._pool_file(package).exists()], on_message)
        self._write_repository(planned.id, self._packages_text(planned.index))
        self._set_latest(planned.id)
        self._prune()
        return planned

    def plan(self, required: Iterable[str], optional: Iterable[str], on_message: OnMessage) -> Snapshot:
        """The snapshot that `create` would make; downloads only the index."""
        index = self._upstream_index(on_message)
        selected = closure(index, {*required, *(name for name in optional if name in index)})
        return Snapshot(hashlib.sha256(self._packages_text(selected)).hexdigest(), self._arch, self._root, selected)

    def latest(self) -> Snapshot | None:
        """The latest snapshot of this upstream, if it is complete."""
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

    def _upstream_index(self, on_message: OnMessage) -> Index:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return parse_packages(self._read_index(self._upstream.index_entry(self._arch), on_message))
            except UpstreamError:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _read_index(self, entry: IndexEntry, on_message: OnMessage) -> str:
        cached = self._root / "indexes" / entry.sha256
        if not cached.exists():
            on_message(f"reading the package index of {self._upstream.url}")
            _write_atomically(cached, self._upstream.index(entry).encode())
        return cached.read_text()

    def _packages_text(self, packages: Index) -> bytes:
        stanzas = (package.stanza(Filename=f"pool/{self._pool_file(package).name}") for package in packages)
        return "\n".join(stanzas).encode()

    def _download(self, packages: list[Package], on_message: OnMessage) -> None:
        if not packages:
            return
        (self._root / "pool").mkdir(parents=True, exist_ok=True)
        megabytes = sum(package.size for package in packages) / 1e6
        on_message(f"downloading {len(packages)} packages, {megabytes:.1f} MB")
        with ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
            list(pool.map(lambda package: self._upstream.download(package, self._pool_file(package)), packages))

    def _pool_file(self, package: Package) -> Path:
        return self._root / "pool" / f"{package.name}_{package.sha256[:24]}.deb"

    def _index_dir(self, name: str) -> Path:
        return self._root / name / "dists" / "stable" / "main" / f"binary-{self._arch}"

    def _write_repository(self, name: str, packages: bytes) -> None:
        repository = self._root / name
        if (repository / "dists/stable/Release").exists():
            os.utime(repository / "dists")  # in use again: counts as new when pruning
            return
        index = {"Packages": packages, "Packages.gz": gzip.compress(packages, mtime=0)}
        for file, data in index.items():
            _write_atomically(self._index_dir(name) / file, data)
        if not (pool := repository / "pool").is_symlink():
            pool.symlink_to("../pool")
        _write_atomically(repository / "dists/stable/Release", _release(self._arch, index).encode())

    def _set_latest(self, name: str) -> None:
        file = self._root / "latest.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        existing = {url: snapshot for url, snapshot in known.items() if not _is_gone(url)}
        _write_atomically(file, json.dumps({**existing, self._upstream.url: name}, indent=2).encode())

    def _prune(self) -> None:
        """Delete old snapshots, and packages that no snapshot contains."""
        repositories = sorted(self._root.glob("*/dists"), key=_age)
        for dists in repositories[_KEEP_SNAPSHOTS:]:
            if _age(dists) > _IN_USE_SECONDS:
                shutil.rmtree(dists.parent)
        needed = {file for dists in repositories if dists.exists() for file in self._pool_files(dists.parent.name)}
        for file in (self._root / "pool").glob("*.deb"):
            if file not in needed and _age(file) > _IN_USE_SECONDS:
                file.unlink(missing_ok=True)

    def _pool_files(self, name: str) -> Iterator[Path]:
        yield from map(self._pool_file, parse_packages((self._index_dir(name) / "Packages").read_text()))


def _id(sha256: str) -> str:
    return sha256[:16]


def _is_gone(url: str) -> bool:
    """The repository of a lab that no longer exists."""
    parts = urlsplit(url)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _release(arch: str, index: dict[str, bytes]) -> str:
    sums = "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-{arch}/{name}\n" for name, data in index.items()
    )
    # apt refuses a repository dated in the future, and the clock of a phone may be years behind.
    return (
        "Origin: clusterctl\nSuite: stable\nCodename: stable\nDate: Thu, 01 Jan 1970 00:00:00 UTC\n"
        f"Architectures: {arch}\nComponents: main\nSHA256:\n{sums}"
    )


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
