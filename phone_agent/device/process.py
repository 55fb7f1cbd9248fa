"""Processes of this user, identified by pid and start time, because pids are reused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from phone_agent.contract.files import read_text

PROC = Path("/proc")
STATE, SESSION, USER_TIME, SYSTEM_TIME, STARTED = 0, 3, 11, 12, 19  # fields of /proc/PID/stat after the name
DEAD = {"Z", "X"}
MPI_PROGRAMS = frozenset({"mpirun", "orterun", "orted", "ssh"})


@dataclass(frozen=True)
class ProcessId:
    """`started` is in clock ticks since boot; None if /proc does not show it."""

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
    """From the first thread: under emulation, a process sees another start time in its own stat than others do."""
    fields = _stat(pid, proc / str(pid) / "task")
    return int(fields[STARTED]) if fields else None


def session_members(leader: int, proc: Path = PROC) -> list[int]:
    """Processes of a session: the ranks of mpirun leave its process group but not its session."""
    pids = [int(path.name) for path in proc.glob("[0-9]*")]
    return [pid for pid in pids if (fields := _stat(pid, proc)) and int(fields[SESSION]) == leader and _own(pid, proc)]


def run_processes(run_id: str, proc: Path = PROC) -> list[int]:
    """Processes that execute a run: its ranks; mpirun, its daemons and their ssh, which have the run id as an
    argument. Excludes those that supervise it, follow it or hold its state."""
    pids = [int(path.name) for path in proc.glob("[0-9]*")]
    return [pid for pid in pids if _executes(run_id, _argv(pid, proc)) and _stat(pid, proc) and _own(pid, proc)]


@dataclass(frozen=True)
class ProcessActivity:
    state: str  # as in /proc: R, S, D, T, …
    cpu_s: float


def rank_processes(run_id: str, proc: Path = PROC) -> list[int]:
    """Excludes mpirun on the head phone, whose command line ends with that of a rank."""
    rank = ["phone_agent", "train", run_id]
    return [pid for pid in run_processes(run_id, proc) if _contains(rank, _argv(pid, proc))]


def process_activity(pid: int, proc: Path = PROC) -> ProcessActivity | None:
    fields = _stat(pid, proc)
    if fields is None:
        return None
    ticks = int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])
    return ProcessActivity(fields[STATE], ticks / os.sysconf("SC_CLK_TCK"))


def _executes(run_id: str, argv: list[str]) -> bool:
    program = argv[0].rpartition("/")[2] if argv else ""
    if program in MPI_PROGRAMS:
        return any(run_id in word.replace('"', " ").replace("'", " ").split() for word in argv)
    return _contains(["train", run_id], argv)


def _contains(words: list[str], argv: list[str]) -> bool:
    return any(argv[index : index + len(words)] == words for index in range(len(argv)))


def _argv(pid: int, proc: Path) -> list[str]:
    try:
        return (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _stat(pid: int, proc: Path) -> list[str] | None:
    """The fields after the name, which is in parentheses and may contain anything; None if the process has ended."""
    text = read_text(proc / str(pid) / "stat")
    fields = text.rpartition(")")[2].split() if text else None
    return fields if fields and fields[STATE] not in DEAD else None


def _own(pid: int, proc: Path) -> bool:
    try:
        return (proc / str(pid)).stat().st_uid == os.getuid()
    except OSError:
        return False
