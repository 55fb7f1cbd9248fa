"""A small package repository of real .deb files, the upstream of snapshots in tests."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

ARCH = "aarch64"


@dataclass(frozen=True)
class Deb:
    name: str
    version: str = "1.0"
    depends: str = ""
    provides: str = ""


def write_repository(root: Path, debs: list[Deb]) -> str:
    """Write the repository; returns its file:// URL."""
    stanzas = [_stanza(root, deb) for deb in debs]
    index_dir = root / f"dists/stable/main/binary-{ARCH}"
    index_dir.mkdir(parents=True, exist_ok=True)
    index = gzip.compress("\n".join(stanzas).encode(), mtime=0)
    (index_dir / "Packages.gz").write_bytes(index)
    listed = f" {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-{ARCH}/Packages.gz\n"
    (root / "dists/stable/Release").write_text(f"Suite: stable\nSHA256:\n{listed}")
    return root.as_uri()


def _stanza(root: Path, deb: Deb) -> str:
    archive = _archive(root, deb)
    data = archive.read_bytes()
    return (
        _control(deb)
        + f"Filename: {archive.relative_to(root)}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def _control(deb: Deb) -> str:
    lines = [f"Package: {deb.name}", f"Version: {deb.version}", f"Architecture: {ARCH}", "Maintainer: tests"]
    lines += [f"Depends: {deb.depends}"] if deb.depends else []
    lines += [f"Provides: {deb.provides}"] if deb.provides else []
    return "\n".join([*lines, "Installed-Size: 10", "Description: test package", " of more than one line"]) + "\n"


def _archive(root: Path, deb: Deb) -> Path:
    archive = root / "pool" / f"{deb.name}_{deb.version}.deb"
    if not archive.exists():
        tree = root / "trees" / f"{deb.name}_{deb.version}"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(_control(deb))
        archive.parent.mkdir(exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", "-Znone", tree, archive], check=True, capture_output=True
        )
    return archive
