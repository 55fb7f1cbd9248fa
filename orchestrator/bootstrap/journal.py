"""What was done to a phone, by serial number, kept by this computer: who of a rack is still to come.

The phone itself says what it lacks; the journal is never believed against it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.bootstrap.adb import AdbError
from orchestrator.inventory.model import Cluster, Phone
from orchestrator.paths import ClusterState
from phone_agent.contract.errors import ErrorCode


@dataclass
class Entry:
    serial: str
    phone: str  # its name in the inventory
    told: str = ""  # model and Android version
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
    def entry(self, serial: str, phone: Phone) -> Iterator[Entry]:
        """The phone's entry, for this process alone; `save` keeps it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path(serial).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise AdbError(
                    "another clusterctl is at work on it", code=ErrorCode.DATA_BUSY, remedy="wait for that one to end"
                ) from error
            yield self._read(serial) or Entry(serial, phone.name)

    def save(self, entry: Entry) -> None:
        part = self.path(entry.serial).with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(asdict(entry), indent=2) + "\n", encoding="utf-8")
        part.replace(self.path(entry.serial))

    def to_come(self, cluster: Cluster) -> tuple[Phone, ...]:
        """Phones of the inventory that were never seen through to the end."""
        entries = [self._read(path.stem) for path in self._root.glob("*.json")] if self._root.is_dir() else []
        done = {entry.phone for entry in entries if entry and entry.finished}
        return tuple(phone for phone in cluster if phone.name not in done)

    def _read(self, serial: str) -> Entry | None:
        """None: there is none, or none that could be read; it is only a memory."""
        try:
            return Entry(**json.loads(self.path(serial).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
