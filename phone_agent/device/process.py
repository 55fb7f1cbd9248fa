"""Processes of this user, told apart from later ones with the same number by when they started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from phone_agent.contract.files import read_text

PROC = Path("/proc")
STATE, SESSION, USER_TIME, SYSTEM_TIME, STARTED = 0, 3, 11, 12, 19  # fields of /proc/PID/stat after the name
DEAD = {"Z", "X"}
CARRIERS = frozenset({"mpirun", "orterun", "orted", "ssh"})


@dataclass(frozen=True)
class ProcessId:
    """`started` is in clock ticks since boot; None where /proc would not tell."""

    pid: int
    started: int | None

    def alive(self, proc: Path = PROC) -> bool:
        fields = _stat(self.pid, proc)
        if fields is None or not _own(self.pid, proc):
            return False
        return self.started is None or _started(self.pid, proc) == self.started


def identify(pid: int, proc: Path = PROC) -> ProcessId:
    return ProcessId(pid, _started(pid, proc))


def _started(pid: int, proc: Path) -> int | None:
    """As its first thread tells: an emulated process is shown another time in its own stat than all others see."""
    fields = _stat(pid, proc / str(pid) / "task")
    return int(fields[STARTED]) if fields else None


def session_members(leader: int, proc: Path = PROC) -> list[int]:
    """Own processes of a session: mpirun's ranks leave its process group but not its session."""
    pids = [int(path.name) for path in proc.glob("[0-9]*")]
    return [pid for pid in pids if (fields := _stat(pid, proc)) and int(fields[SESSION]) == leader and _own(pid, proc)]


def of_run(run_id: str, proc: Path = PROC) -> list[int]:
    """Own processes that carry a run out: its ranks; mpirun, its daemons and their ssh, which have its name in a
    parameter. Not those that supervise it, follow it or hold its state."""
    pids = [int(path.name) for path in proc.glob("[0-9]*")]
    return [pid for pid in pids if _carries_out(run_id, _argv(pid, proc)) and _stat(pid, proc) and _own(pid, proc)]


@dataclass(frozen=True)
class Doing:
    state: str  # as in /proc: R, S, D, T, …
    cpu_s: float


def ranks_of(run_id: str, proc: Path = PROC) -> list[int]:
    """The head phone's mpirun is none, though its command line ends with what a rank is asked to do."""
    rank = ["phone_agent", "train", run_id]
    return [pid for pid in of_run(run_id, proc) if _stands_in(rank, _argv(pid, proc))]


def doing(pid: int, proc: Path = PROC) -> Doing | None:
    fields = _stat(pid, proc)
    if fields is None:
        return None
    ticks = int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])
    return Doing(fields[STATE], ticks / os.sysconf("SC_CLK_TCK"))


def _carries_out(run_id: str, argv: list[str]) -> bool:
    program = argv[0].rpartition("/")[2] if argv else ""
    if program in CARRIERS:
        return any(run_id in word.replace('"', " ").replace("'", " ").split() for word in argv)
    return _stands_in(["train", run_id], argv)


def _stands_in(words: list[str], argv: list[str]) -> bool:
    return any(argv[place : place + len(words)] == words for place in range(len(argv)))


def _argv(pid: int, proc: Path) -> list[str]:
    try:
        return (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


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
