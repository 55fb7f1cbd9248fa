"""Records on this computer of what was done to each phone, by serial number. Used to list the remaining phones.

What a phone needs is always decided from its own facts, never from the journal.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.bootstrap.adb import AdbError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import write_bytes


@dataclass
class JournalEntry:
    serial: str
    phone: str  # its name in the inventory
    device: str = ""  # model and Android version
    apks: dict[str, str] = field(default_factory=dict)  # package -> sha256
    steps: dict[str, str] = field(default_factory=dict)  # step -> when it was last applied
    host_key: str | None = None
    finished: str | None = None


class Journal:
    def __init__(self, state: ClusterState) -> None:
        self._root = state.root / "bootstrap"

    def path(self, serial: str) -> Path:
        return self._root / f"{serial.replace(':', '_')}.json"

    @contextmanager
    def entry(self, serial: str, phone: Phone) -> Iterator[JournalEntry]:
        """The phone's entry, locked against other processes. `save` writes it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path(serial).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise AdbError(
                    "another clusterctl is working on it", code=ErrorCode.DATA_BUSY, remedy="wait until that one ends"
                ) from error
            yield self._read(serial) or JournalEntry(serial, phone.name)

    def save(self, entry: JournalEntry) -> None:
        write_bytes(self.path(entry.serial), json.dumps(asdict(entry), indent=2).encode() + b"\n")

    def remaining(self, cluster: Cluster) -> tuple[Phone, ...]:
        """Phones of the inventory that have never finished a bootstrap."""
        entries = [self._read(path.stem) for path in self._root.glob("*.json")] if self._root.is_dir() else []
        done = {entry.phone for entry in entries if entry and entry.finished}
        return tuple(phone for phone in cluster if phone.name not in done)

    def _read(self, serial: str) -> JournalEntry | None:
        """None if there is no readable entry."""
        try:
            return JournalEntry(**json.loads(self.path(serial).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
