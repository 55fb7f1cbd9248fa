"""The list of a release's files and their sha256: written by the host when it bundles, checked by the phone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.contract.files import read_json, write_json
from phone_agent.contract.layout import MANIFEST


def write(release: Path, *, version: str, target: str) -> dict[str, Any]:
    """Lists every file below `release` in its manifest, and returns the manifest."""
    files = {str(path): _sha256(release / path) for path in _files(release)}
    document = {"version": version, "target": target, "files": files}
    write_json(release / MANIFEST, document)
    return document


def read(release: Path) -> dict[str, Any]:
    document = read_json(release / MANIFEST)
    if not isinstance(document, dict) or not isinstance(document.get("files"), dict):
        raise AgentError(
            f"{release / MANIFEST} is missing or damaged: provision this phone again", code=ErrorCode.AGENT_DAMAGED
        )
    return document


def verify(release: Path) -> list[str]:
    """What differs from the manifest, one sentence each; empty when the release is whole."""
    listed = read(release)["files"]
    present = {str(path) for path in _files(release)}
    problems = [f"{name} is not in the manifest" for name in sorted(present - listed.keys())]
    for name, expected in sorted(listed.items()):
        if name not in present:
            problems.append(f"{name} is missing")
        elif _sha256(release / name) != expected:
            problems.append(f"{name} is damaged")
    return problems


def _files(release: Path) -> Iterator[PurePosixPath]:
    """Regular files, sorted. Python's own caches come and go and are no part of a release."""
    for path in sorted(release.rglob("*")):
        relative = path.relative_to(release)
        if path.is_file() and "__pycache__" not in relative.parts and relative != Path(MANIFEST):
            yield PurePosixPath(relative)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
