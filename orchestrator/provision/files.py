"""Files that provisioning manages on phones: whole files, and blocks inside files of the phone's owner."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.provision.resources import read_script
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

_BEGIN: Final = "# >>> clusterctl: managed block, changes between these lines are lost"
_END: Final = "# <<< clusterctl"
_BLOCK: Final = re.compile(rf"^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}$\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class ManagedFile:
    path: str  # '~/…' or '$PREFIX/…', expanded on the phone
    content: bytes
    mode: int = 0o600

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def differs(self, facts: TermuxFacts) -> bool:
        found = facts.files.get(self.path)
        return found is None or found.sha256 != self.sha256 or found.mode != f"{self.mode:o}"


def changed_files(desired: Iterable[ManagedFile], facts: TermuxFacts) -> tuple[ManagedFile, ...]:
    return tuple(file for file in desired if file.differs(facts))


def with_block(text: str, lines: Iterable[str], *, first: bool = False) -> str:
    """The text with our block replaced where it is, else added. All other lines stay unchanged."""
    block = "\n".join([_BEGIN, *lines, _END]) + "\n"
    if _BLOCK.search(text):
        return _BLOCK.sub(lambda _: block, text, count=1)
    if text and not text.endswith("\n"):
        text += "\n"
    return block + text if first else text + block


def outside_block(text: str) -> str:
    return _BLOCK.sub("", text)


def install_files(connection: PhoneConnection, files: Iterable[ManagedFile]) -> None:
    """Install all files in one round trip, each atomically."""
    selected = tuple(files)
    arguments = [word for file in selected for word in (f"{file.mode:o}", file.path)]
    done = connection.run(
        ["bash", "-c", read_script("install-files"), "clusterctl", *arguments], stdin=tar_archive(selected)
    )
    if not done.ok:
        message = (done.stderr.strip().splitlines() or [f"exit code {done.rc}"])[-1]
        raise PhoneError(
            f"cannot write {', '.join(file.path for file in selected)}: {message}",
            code=ErrorCode.COMMAND_FAILED,
            phase="copy",
        )


def tar_archive(files: tuple[ManagedFile, ...]) -> bytes:
    """Members are named by position. Destinations are arguments of the script, never paths in the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for position, file in enumerate(files):
            member = tarfile.TarInfo(str(position))
            member.size, member.mode = len(file.content), 0o600
            tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()
