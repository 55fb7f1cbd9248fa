"""Build an apt repository with the layout of Termux's main repository."""

from __future__ import annotations

import gzip
import lzma
from hashlib import md5, sha256
from pathlib import Path

from orchestrator.lab.termux.catalog import Package, load_catalog, paragraph
from orchestrator.lab.termux.contents import installed_kib, package_entries
from orchestrator.lab.termux.deb import build_deb
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.layout import TermuxLayout

_DATE = "Thu, 01 Jan 2026 00:00:00 UTC"  # fixed, for reproducibility; apt rejects a Release file from the future


def build_mirror(out: Path, host: HostPrograms, *, prefix: str) -> Path:
    """Write the repository to `out` and return the directory a `deb URL stable main` line points at.

    Termux's own index is signed; this one is not, and needs `[trusted=yes]`.
    """
    layout = TermuxLayout(host, prefix)
    packages = "\n".join(_publish(package, out, layout) for package in load_catalog()).encode()
    suite = out / "dists" / "stable"
    indexes = _indexes(packages, f"main/binary-{host.machine}")
    for name, data in indexes.items():
        _write(suite / name, data)
    _write(suite / "Release", _release(indexes, host.machine).encode())
    return out


def _publish(package: Package, out: Path, layout: TermuxLayout) -> str:
    """Add a package to the pool. Return its paragraph of the index."""
    entries = package_entries(package, layout)
    deb = build_deb(package, entries, layout)
    filename = f"pool/main/{_pool_letter(package.name)}/{package.name}/{package.name}_{package.version}_all.deb"
    _write(out / filename, deb)
    where = {"Filename": filename, "Size": str(len(deb)), **_sums(deb)}
    return paragraph({**package.control(installed_kib(entries)), **where})


def _pool_letter(name: str) -> str:
    return name[:4] if name.startswith("lib") else name[0]


def _sums(data: bytes) -> dict[str, str]:
    return {"MD5sum": md5(data, usedforsecurity=False).hexdigest(), "SHA256": sha256(data).hexdigest()}


def _indexes(packages: bytes, directory: str) -> dict[str, bytes]:
    return {
        f"{directory}/Packages": packages,
        f"{directory}/Packages.gz": gzip.compress(packages, mtime=0),
        f"{directory}/Packages.xz": lzma.compress(packages),
    }


def _release(indexes: dict[str, bytes], architecture: str) -> str:
    head = paragraph(
        {
            "Origin": "termux-main stable",
            "Label": "termux-main stable",
            "Suite": "stable",
            "Codename": "stable",
            "Date": _DATE,
            "Architectures": architecture,
            "Components": "main",
            "Description": "clusterctl lab: replacements for Termux packages",
        }
    )
    sums = "".join(f" {sha256(data).hexdigest()} {len(data):>9} {name}\n" for name, data in sorted(indexes.items()))
    return f"{head}SHA256:\n{sums}"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
