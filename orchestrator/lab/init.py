"""Process 1 of a virtual phone: starts what Android would start, reaps, and keeps nothing alive.

On a phone nobody restarts sshd unless provisioning arranged for it, so neither does this. The anchor sends it
work over a socket; for `exec` it hands over the asking client's own connection, which gets the exit code.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.lab import cables
from orchestrator.lab.environment import TERMUX_FILES, PhonePaths
from orchestrator.lab.processes import Process, command_line, descendants, exit_code, kill, spawn, wake_on_child_exit
from orchestrator.lab.quirks import Habits, app_environment, sshd_environment

_SSHD = ("sshd", "-D")  # in the foreground, as the app would start it
_SHEBANG_BYTES = 256
_RESTARTS_SSHD = frozenset({"environment", "preload", "tmpdir"})  # sessions inherit what sshd was started with
_RESTARTS_TERMUX = frozenset({"sysv", "links"})  # processes keep the system calls they were started with
_POLL_S = 0.005
_NOT_HERE = ("/bin/", "/usr/bin/", f"/{TERMUX_FILES}/usr/bin/")  # or not here in a phone without namespaces


def boot_command(script: Path, prefix: Path) -> list[str]:
    """How Termux runs a script: an interpreter in /bin or /usr/bin is looked for in $PREFIX/bin."""
    with script.open("rb") as stream:
        first = stream.readline(_SHEBANG_BYTES)
    if first.startswith(b"\x7fELF"):
        return [str(script)]
    words = (first.startswith(b"#!") and first[2:].decode(errors="replace").split()) or ["sh"]
    if words[0].startswith(_NOT_HERE) or "/" not in words[0]:
        words[0] = str(prefix / "bin" / Path(words[0]).name)
    return [*words, str(script)]


def boot_scripts(home: Path) -> list[Path]:
    """What Termux:Boot runs: the files of ~/.termux/boot in order, up to the first thing that is none."""
    directory = home / ".termux" / "boot"
    return list(takewhile(Path.is_file, sorted(directory.iterdir()))) if directory.is_dir() else []


def is_session(sshd: Process) -> bool:
    """Whether this sshd serves somebody who is logged in; its listener may be gone. They write it in their titles."""
    title = command_line(sshd.pid)
    return title.startswith("sshd: ") and "[listener]" not in title


@dataclass
class PhoneInit:
    control: socket.socket  # to the anchor
    paths: PhonePaths
    become_user: Callable[[], None]
    console: int  # where the output of what nobody watches goes
    habits: Habits
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _clients: dict[int, socket.socket] = field(default_factory=dict)  # by the process they wait for

    def serve(self) -> NoReturn:
        wake = wake_on_child_exit()
        self._selector.register(wake, selectors.EVENT_READ, self._reap)
        self._selector.register(self.control, selectors.EVENT_READ, self._obey)
        while True:
            for key, _ in self._selector.select(self.habits.tick(time.monotonic())):
                key.data(key.fileobj)

    def _obey(self, control: socket.socket) -> None:
        try:
            message, files = cables.receive(control)
        except (EOFError, ConnectionError):
            self._power_off()
        match message["op"]:
            case "boot":
                self._boot()
            case "exec":
                self._exec(message, files)
            case "terminal":
                self._exec_at_terminal(message, socket.socket(fileno=files[0]))
            case "habit":
                self._change(message["key"], socket.socket(fileno=files[0]))
            case "sshd-up":
                self._start_sshd()
            case "sshd-down":
                self._signal_sshd(signal.SIGKILL)
            case "sshd-reload":
                self._signal_sshd(signal.SIGHUP)

    def _boot(self) -> None:
        self.habits.start()
        if not self.habits.is_unhealthy("boot"):
            self._start_termux()

    def _start_termux(self) -> None:
        scripts = boot_scripts(self.paths.home)
        if not scripts or self._is_any_habit_of(_RESTARTS_SSHD):
            self._start_sshd()
        for script in scripts:
            self._start(boot_command(script, self.paths.prefix), app_environment(self.paths))

    def _is_any_habit_of(self, keys: frozenset[str]) -> bool:
        return any(self.habits.is_unhealthy(key) for key in keys)

    def _start_sshd(self) -> None:
        self._start(_SSHD, sshd_environment(self.paths))

    def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        program = str(self.paths.prefix / "bin" / argv[0])  # wherever its PATH will lead
        nothing = os.open(os.devnull, os.O_RDONLY)
        self._spawn([program, *argv[1:]], environment, [nothing, self.console, self.console])
        os.close(nothing)

    def _change(self, key: str, client: socket.socket) -> None:
        try:
            self.habits.apply(key)
            restarted = self._restart_what_inherits(key)
        except OSError as error:
            _answer(client, {"error": f"{key}: {error}"})
        else:
            _answer(client, {"sshd": "restarted"} if restarted else {})

    def _restart_what_inherits(self, key: str) -> bool:
        """What a process was started with does not change any more. Returns whether an sshd will be up again."""
        if key in _RESTARTS_TERMUX:
            while alive := self._alive():  # some were born in the meantime
                self._end(alive)
            self._start_termux()
            return True
        return key in _RESTARTS_SSHD and self._restart_sshd()

    def _restart_sshd(self) -> bool:
        """If there is one. Where a script keeps it alive, ours is first, and the script's finds the port taken."""
        listening = self._listeners()
        self._end(listening)
        if listening:
            self._start_sshd()
        return bool(listening)

    def _end(self, processes: Sequence[Process]) -> None:
        """Kills, and waits until the last is gone."""
        for process in processes:
            kill(process.pid, signal.SIGKILL)
        doomed = {process.pid for process in processes}
        while doomed & {process.pid for process in self._alive()}:
            time.sleep(_POLL_S)
            self._collect()

    def _alive(self) -> list[Process]:
        return [process for process in descendants(os.getpid()) if not process.is_zombie]

    def _exec(self, message: dict[str, Any], files: list[int]) -> None:
        client = socket.socket(fileno=files[0])
        pid = self._spawn(message["argv"], app_environment(self.paths), files[1:])
        for file in files[1:]:
            os.close(file)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, lambda _: self._abandon(pid))

    def _exec_at_terminal(self, message: dict[str, Any], client: socket.socket) -> None:
        """A program nobody sits in front of. The client is told when the terminal shows what it waits for."""
        ours, theirs = os.openpty()
        self._spawn(message["argv"], app_environment(self.paths), [theirs, theirs, theirs])
        os.close(theirs)
        terminal = Terminal(ours, message["until"], client)
        self._selector.register(ours, selectors.EVENT_READ, lambda _: self._watch(terminal))

    def _watch(self, terminal: Terminal) -> None:
        if not terminal.read():
            self._selector.unregister(terminal.file)
            os.close(terminal.file)

    def _spawn(self, argv: Sequence[str], environment: Mapping[str, str], stdio: Sequence[int]) -> int:
        return spawn(argv, environment, stdio, self.become_user, self.paths.home)

    def _abandon(self, pid: int) -> None:
        """The client went away: hang up, as a terminal would."""
        self._forget(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGHUP)

    def _forget(self, pid: int) -> socket.socket | None:
        client = self._clients.pop(pid, None)
        if client is not None:
            self._selector.unregister(client)
        return client

    def _reap(self, wake: socket.socket) -> None:
        wake.recv(4096)
        self._collect()

    def _collect(self) -> None:
        """The exit codes of children that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if client := self._forget(pid):
                _answer(client, {"exit": exit_code(status)})

    def _signal_sshd(self, number: signal.Signals) -> None:
        """The listener only: sessions go on, as they do when Android kills it."""
        for process in self._listeners():
            kill(process.pid, number)

    def _listeners(self) -> list[Process]:
        family = {process.pid: process for process in descendants(os.getpid())}
        daemons = [process for process in family.values() if process.name == "sshd" and not is_session(process)]
        return [process for process in daemons if process.parent not in family or family[process.parent].name != "sshd"]

    def _power_off(self) -> NoReturn:
        while alive := descendants(os.getpid()):
            for process in alive:
                kill(process.pid, signal.SIGKILL)
            os.waitpid(-1, 0)
        os._exit(0)


@dataclass
class Terminal:
    """One that nobody sits in front of."""

    file: int
    until: str
    client: socket.socket | None
    _shown: str = ""

    def read(self) -> bool:
        """Whether the program still has it open. Tells the client, once, when it shows what was waited for."""
        try:
            self._shown += os.read(self.file, 4096).decode(errors="replace")
        except OSError:  # EIO: the other end is closed
            self._tell({"error": f"it ended instead of waiting: {self._shown.strip()[-500:]}"})
            return False
        if self.until in self._shown:
            self._tell({})
        return True

    def _tell(self, message: dict[str, Any]) -> None:
        if self.client is not None:
            _answer(self.client, message)
            self.client = None


def _answer(client: socket.socket, message: dict[str, Any]) -> None:
    with client, contextlib.suppress(OSError):  # it may not wait for the answer any more
        cables.send(client, message)
