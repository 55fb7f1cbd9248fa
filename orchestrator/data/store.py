"""Datasets on this computer: one directory each, created atomically."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.data.walk import walk
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.paths import state_dir
from phone_agent.contract.dataset_manifest import MANIFEST_FILE, NAME, DatasetManifest, ShardFile, parse_manifest
from phone_agent.contract.errors import AgentError
from phone_agent.contract.files import read_json, sync_directory, write_json
from phone_agent.contract.schema import SYNTHETIC

ORIGIN = "origin.json"  # source path and import options
RESERVED = {SYNTHETIC, "auto"}


@dataclass(frozen=True)
class StoredDataset:
    directory: Path
    manifest: DatasetManifest
    origin: dict[str, object]

    @property
    def name(self) -> str:
        return self.manifest.name

    def is_intact(self, file: ShardFile) -> bool:
        """Whether the file still has its checksum."""
        try:
            with (self.directory / file.name).open("rb") as opened:
                return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
        except OSError:
            return False


class Store:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root or state_dir() / "data"

    def all(self) -> list[StoredDataset]:
        if not self.root.is_dir():
            return []
        names = sorted(
            path.name for path in self.root.iterdir() if (path / MANIFEST_FILE).is_file() and NAME.fullmatch(path.name)
        )
        return [self.get(name) for name in names]

    def get(self, name: str) -> StoredDataset:
        directory = self.root / check_name(name)
        if not (directory / MANIFEST_FILE).is_file():
            known = ", ".join(path.name for path in sorted(self.root.glob("[!.]*"))) if self.root.is_dir() else ""
            raise UsageError(
                f"no dataset named '{name}'" + (f"; available: {known}" if known else ""),
                remedy=f"clusterctl data add {name} SOURCE",
            )
        try:
            manifest = parse_manifest(read_json(directory / MANIFEST_FILE))
        except AgentError as error:
            raise ClusterctlError(f"{directory}: {error}", remedy=f"clusterctl data remove {name}") from None
        return StoredDataset(directory, manifest, read_json(directory / ORIGIN) or {})

    def find(self, name: str) -> StoredDataset | None:
        return self.get(name) if (self.root / check_name(name) / MANIFEST_FILE).is_file() else None

    def made_from(self, path: Path) -> list[StoredDataset]:
        """Datasets imported from exactly these files, with any options."""
        origins = {each.parent.name: read_json(each) or {} for each in sorted(self.root.glob(f"[!.]*/{ORIGIN}"))}
        alike = [name for name, origin in origins.items() if origin.get("path") == str(path.absolute())]
        files = fingerprint(path) if alike else ""
        return [self.get(name) for name in alike if origins[name].get("files") == files]

    def remove(self, name: str) -> None:
        stored = self.root / check_name(name)
        with self.locked():
            if not stored.is_dir():
                self.get(name)
            self._remove_leftovers()
            away = self.root / f".{name}.removed"
            stored.rename(away)
            shutil.rmtree(away)

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClusterctlError(
                    "another clusterctl is changing the datasets", remedy="wait until it has finished"
                ) from None
            yield

    @contextmanager
    def create(self, name: str) -> Iterator[Path]:
        """A directory to fill. It becomes the dataset on success and is removed on an exception."""
        with self.locked():
            self._remove_leftovers()
            new = self.root / f".{name}.new"
            new.mkdir()
            try:
                yield new
                new.rename(self.root / name)
                sync_directory(self.root)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise

    def _remove_leftovers(self) -> None:
        """Remove what a killed clusterctl left behind."""
        for ending in ("new", "removed"):
            for scrap in self.root.glob(f".*.{ending}"):
                shutil.rmtree(scrap, ignore_errors=True)


def check_name(name: str) -> str:
    if not NAME.fullmatch(name) or name in RESERVED:
        taken = " (reserved)" if name in RESERVED else ""
        raise UsageError(
            f"invalid dataset name '{name}'{taken}", remedy="use lowercase letters, digits, '.', '-' and '_'"
        )
    return name


def write_manifest(directory: Path, manifest: DatasetManifest, origin: dict[str, object]) -> None:
    write_json(directory / ORIGIN, origin)
    write_json(directory / MANIFEST_FILE, manifest.to_json())


def fingerprint(path: Path, options: str = "") -> str:
    """Changes when a file changes: based on names, sizes and times, because reading all of ImageNet takes an hour."""
    digest = hashlib.sha256(options.encode())
    for file in [path] if path.is_file() else _files(path):
        digest.update(f"{file.relative_to(path)}\0{_state(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _state(file: Path) -> str:
    if file.is_dir():
        return str(file.resolve())
    status = file.stat()
    return f"{status.st_size}\0{status.st_mtime_ns}"


def _files(directory: Path) -> Iterator[Path]:
    """All files, and symlinks to directories: their target is listed once but may belong to several classes."""
    for folder, subfolders, names in walk(directory):
        yield from (link for name in subfolders if (link := folder / name).is_symlink())
        yield from (file for name in names if (file := folder / name).is_file())
