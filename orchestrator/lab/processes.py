"""Starting and finding processes on a virtual phone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

# Programs expect the default handlers. Python ignores the first two; the caller of `lab up` may ignore the others.
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

_STATE, _PARENT, _STARTED = 0, 1, 19  # in /proc/PID/stat, after the name


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str
    state: str = "S"
    started: int = 0  # clock ticks since the host booted

    @property
    def is_zombie(self) -> bool:
        return self.state == "Z"


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    stdio: Sequence[int],
    become_user: Callable[[], None],
    home: Path,
) -> int:
    """Start a program in its own session, as the phone's user. Return its process id."""
    if pid := os.fork():
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*_RESET_SIGNALS, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        become_user()
        _execute(argv, environment, home)
    finally:
        os._exit(126)


def _execute(argv: Sequence[str], environment: Mapping[str, str], home: Path) -> NoReturn:
    os.umask(0o077)
    os.chdir(home if home.is_dir() else "/")
    try:
        os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606 (no shell is the point)
    except FileNotFoundError:
        os.write(2, f"{argv[0]}: not found\n".encode())
        os._exit(127)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(126)


def exit_code(status: int) -> int:
    """Convert a wait status to an exit code as a shell does."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def descendants(ancestor: int) -> list[Process]:
    """All descendants of a process, parents before their children."""
    children: dict[int, list[Process]] = {}
    for process in _all_processes():
        children.setdefault(process.parent, []).append(process)
    result: list[Process] = []
    pending = [ancestor]
    while pending:
        direct = children.pop(pending.pop(), [])
        result += direct
        pending += [process.pid for process in direct]
    return result


def _all_processes() -> list[Process]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]  # noqa: PTH208
    return [process for pid in pids if (process := _read(pid)) is not None]


def _read(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name = stat[stat.index("(") + 1 : stat.rindex(")")]  # the name may contain spaces and parentheses
    fields = stat[stat.rindex(")") + 1 :].split()
    return Process(pid, int(fields[_PARENT]), name, fields[_STATE], int(fields[_STARTED]))


def command_line(pid: int) -> str:
    """The arguments of a process, or the title it has set; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def close_inherited(keep: int) -> None:
    """After a fork without exec: close all inherited files except `keep`, and reset signal handling."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def wake_on_child_exit() -> socket.socket:
    """A socket that becomes readable when a child process exits."""
    wake, trigger = socket.socketpair()
    trigger.settimeout(0)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(trigger.detach(), warn_on_full_buffer=False)
    return wake
