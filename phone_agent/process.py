"""Processes of this user, told apart from later ones with the same number by when they started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from phone_agent.files import read_text

PROC = Path("/proc")
STATE, SESSION, STARTED = 0, 3, 19  # fields of /proc/PID/stat after the name
DEAD = {"Z", "X"}


@dataclass(frozen=True)
class ProcessId:
    """`started` is in clock ticks since boot; None where /proc would not tell."""

    pid: int
    started: int | None

    def alive(self, proc: Path = PROC) -> bool:
        fields = _stat(self.pid, proc)
        if fields is None or not _own(self.pid, proc):
            return False
        return self.started is None or int(fields[STARTED]) == self.started


def identify(pid: int, proc: Path = PROC) -> ProcessId:
    fields = _stat(pid, proc)
    return ProcessId(pid, int(fields[STARTED]) if fields else None)


def session_members(leader: int, proc: Path = PROC) -> list[int]:
    """Own processes of a session: mpirun's ranks leave its process group but not its session."""
    pids = [int(path.name) for path in proc.glob("[0-9]*")]
    return [pid for pid in pids if (fields := _stat(pid, proc)) and int(fields[SESSION]) == leader and _own(pid, proc)]


def _stat(pid: int, proc: Path) -> list[str] | None:
    """The fields after the name, which is in brackets and may hold anything; None for what does not run (any more)."""
    text = read_text(proc / str(pid) / "stat")
    fields = text.rpartition(")")[2].split() if text else None
    return fields if fields and fields[STATE] not in DEAD else None


def _own(pid: int, proc: Path) -> bool:
    try:
        return (proc / str(pid)).stat().st_uid == os.getuid()
    except OSError:
        return False
