"""The agent bundle: Python files, OpenCL kernels, the compute core, and a manifest with their sha256.

Bundles are reproducible: the same input gives the same bytes and file modes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from orchestrator.errors import ClusterctlError, UsageError
from phone_agent.api.bundle import RANK_LAUNCHER, BuildError, native_files, source_files
from phone_agent.contract import manifest
from phone_agent.contract.layout import MANIFEST


class Target(StrEnum):
    HOST = "host"  # this computer and virtual phones
    AARCH64_ANDROID = "aarch64-android"


@dataclass(frozen=True)
class Bundle:
    id: str  # hash of the manifest
    path: Path
    tree_sha256: str  # the same hash that facts.sh computes on the phone
    files: int


def build_bundle(target: Target, out: Path) -> Bundle:
    """Write the bundle to `out`, which must be empty, absent or an earlier bundle."""
    _refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=".bundle-"))
    try:
        files = _copy_files(target, scratch)
        manifest.write(scratch, version=metadata.version("clusterctl"), target=target.value)
        _set_modes(scratch)
        _replace(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Bundle(_sha256(out / MANIFEST)[:16], out, _tree_sha256(out), files)


def build_bundles(architectures: Iterable[str], directory: Path) -> dict[str, Bundle]:
    """One bundle per architecture that the core has kernels for."""
    targets = {architecture: _target(architecture) for architecture in architectures}
    return {
        architecture: build_bundle(target, directory / architecture)
        for architecture, target in targets.items()
        if target
    }


def _target(architecture: str) -> Target | None:
    if architecture == "aarch64":
        return Target.AARCH64_ANDROID
    return Target.HOST if architecture == os.uname().machine else None


def _refuse_foreign(out: Path) -> None:
    if out.exists() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise UsageError(f"{out} is not empty and not an agent bundle", remedy="choose another directory with --out")


def _copy_files(target: Target, destination: Path) -> int:
    try:
        files = source_files() | native_files(android=target is Target.AARCH64_ANDROID)
    except BuildError as error:
        raise ClusterctlError(f"cannot build the compute core: {error}") from None
    for name, file in files.items():
        _copy(file, destination / name)
    return len(files)


def _copy(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(source.read_bytes())


def _set_modes(root: Path) -> None:
    """Independent of the umask."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        is_executable = path.is_dir() or path == root / RANK_LAUNCHER
        path.chmod(0o755 if is_executable else 0o644)


def _replace(new: Path, out: Path) -> None:
    if out.exists():
        shutil.rmtree(out)
    new.rename(out)


def _tree_sha256(root: Path) -> str:
    """The hash that `find . -type f | sort | xargs sha256sum | sha256sum` prints in the bundle directory."""
    names = sorted(f"./{path.relative_to(root)}" for path in root.rglob("*") if path.is_file())
    listing = "".join(f"{_sha256(root / name)}  {name}\n" for name in names)
    return hashlib.sha256(listing.encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
