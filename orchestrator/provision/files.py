"""Files that provisioning keeps on phones: whole ones, and blocks of its own inside files that belong to others."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.errors import PhoneError
from orchestrator.provision.facts import Facts
from orchestrator.provision.resources import script
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_BEGIN: Final = "# >>> clusterctl: written by it, changes between these lines are lost"
_END: Final = "# <<< clusterctl"
_BLOCK: Final = re.compile(rf"^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}$\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class ManagedFile:
    path: str  # '~/…' or '$PREFIX/…': the phone's script knows both
    content: bytes
    mode: int = 0o600

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def differs(self, facts: Facts) -> bool:
        found = facts.files.get(self.path)
        return found is None or found.sha256 != self.sha256 or found.mode != f"{self.mode:o}"


def changed_files(wanted: Iterable[ManagedFile], facts: Facts) -> tuple[ManagedFile, ...]:
    return tuple(file for file in wanted if file.differs(facts))


def with_block(text: str, lines: Iterable[str], *, first: bool = False) -> str:
    """The text with our block in it: renewed where it stands, else added. All other lines stay as they are."""
    block = "\n".join([_BEGIN, *lines, _END]) + "\n"
    if _BLOCK.search(text):
        return _BLOCK.sub(lambda _: block, text, count=1)
    if text and not text.endswith("\n"):
        text += "\n"
    return block + text if first else text + block


def outside_block(text: str) -> str:
    return _BLOCK.sub("", text)


def install_files(connection: PhoneConnection, files: Iterable[ManagedFile]) -> None:
    """All files in one round trip; each appears whole or not at all."""
    chosen = tuple(files)
    arguments = [word for file in chosen for word in (f"{file.mode:o}", file.path)]
    done = connection.run(["bash", "-c", script("install-files"), "clusterctl", *arguments], stdin=archive(chosen))
    if not done.ok:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.rc}"])[-1]
        raise PhoneError(
            f"cannot write {', '.join(file.path for file in chosen)}: {said}",
            code=ErrorCode.COMMAND_FAILED,
            phase="copy",
        )


def archive(files: tuple[ManagedFile, ...]) -> bytes:
    """Named by position: where a file goes is an argument, never a path inside the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for position, file in enumerate(files):
            member = tarfile.TarInfo(str(position))
            member.size, member.mode = len(file.content), 0o600
            archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()
