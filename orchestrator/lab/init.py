"""Process 1 of a virtual phone: starts what Android would start, and reaps processes.

It never restarts sshd: on a real phone that happens only if provisioning has set it up. The daemon sends requests over
a socket. For `exec` it also passes the connection of the client, to which init sends the exit code.
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

from orchestrator.lab import ipc
from orchestrator.lab.environment import TERMUX_FILES, PhonePaths
from orchestrator.lab.processes import Process, command_line, descendants, exit_code, kill, spawn, wake_on_child_exit
from orchestrator.lab.quirks import Quirks, app_environment, sshd_environment

_SSHD = ("sshd", "-D")  # in the foreground, as the Termux app starts it
_SHEBANG_BYTES = 256
_RESTARTS_SSHD = frozenset({"environment", "preload", "tmpdir"})  # sessions inherit sshd's environment
_RESTARTS_TERMUX = frozenset({"sysvipc", "hardlinks"})  # a process keeps the seccomp filter it was started with
_POLL_S = 0.005
_MISSING_BIN_DIRS = ("/bin/", "/usr/bin/", f"/{TERMUX_FILES}/usr/bin/")  # the last: missing in loopback mode


def boot_command(script: Path, prefix: Path) -> list[str]:
    """The command that runs a script as Termux does: interpreters in /bin and /usr/bin map to $PREFIX/bin."""
    with script.open("rb") as stream:
        first = stream.readline(_SHEBANG_BYTES)
    if first.startswith(b"\x7fELF"):
        return [str(script)]
    words = (first.startswith(b"#!") and first[2:].decode(errors="replace").split()) or ["sh"]
    if words[0].startswith(_MISSING_BIN_DIRS) or "/" not in words[0]:
        words[0] = str(prefix / "bin" / Path(words[0]).name)
    return [*words, str(script)]


def boot_scripts(home: Path) -> list[Path]:
    """The scripts that Termux:Boot runs: the files of ~/.termux/boot in order, up to the first non-file."""
    directory = home / ".termux" / "boot"
    return list(takewhile(Path.is_file, sorted(directory.iterdir()))) if directory.is_dir() else []


def is_session(sshd: Process) -> bool:
    """Whether this sshd process serves a login session, according to its process title."""
    title = command_line(sshd.pid)
    return title.startswith("sshd: ") and "[listener]" not in title


@dataclass
class PhoneInit:
    control: socket.socket  # to the daemon
    paths: PhonePaths
    become_user: Callable[[], None]
    console: int  # log file for the output of background processes
    quirks: Quirks
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _clients: dict[int, socket.socket] = field(default_factory=dict)  # by the PID of the process they wait for

    def serve(self) -> NoReturn:
        wake = wake_on_child_exit()
        self._selector.register(wake, selectors.EVENT_READ, self._on_child_exit)
        self._selector.register(self.control, selectors.EVENT_READ, self._handle_message)
        while True:
            for key, _ in self._selector.select(self.quirks.tick(time.monotonic())):
                key.data(key.fileobj)

    def _handle_message(self, control: socket.socket) -> None:
        try:
            message, files = ipc.receive(control)
        except (EOFError, ConnectionError):
            self._power_off()
        match message["op"]:
            case "boot":
                self._boot()
            case "exec":
                self._exec(message, files)
            case "terminal":
                self._exec_in_terminal(message, socket.socket(fileno=files[0]))
            case "quirk":
                self._apply_quirk(message["key"], socket.socket(fileno=files[0]))
            case "sshd-up":
                self._start_sshd()
            case "sshd-down":
                self._signal_sshd(signal.SIGKILL)
            case "sshd-reload":
                self._signal_sshd(signal.SIGHUP)

    def _boot(self) -> None:
        self.quirks.start()
        if not self.quirks.is_active("boot"):
            self._start_termux()

    def _start_termux(self) -> None:
        scripts = boot_scripts(self.paths.home)
        if not scripts or self._any_active(_RESTARTS_SSHD):
            self._start_sshd()
        for script in scripts:
            self._start(boot_command(script, self.paths.prefix), app_environment(self.paths))

    def _any_active(self, keys: frozenset[str]) -> bool:
        return any(self.quirks.is_active(key) for key in keys)

    def _start_sshd(self) -> None:
        self._start(_SSHD, sshd_environment(self.paths))

    def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        program = str(self.paths.prefix / "bin" / argv[0])  # regardless of the PATH in `environment`
        nothing = os.open(os.devnull, os.O_RDONLY)
        self._spawn([program, *argv[1:]], environment, [nothing, self.console, self.console])
        os.close(nothing)

    def _apply_quirk(self, key: str, client: socket.socket) -> None:
        try:
            self.quirks.apply(key)
            restarted = self._restart_inheritors(key)
        except OSError as error:
            _reply(client, {"error": f"{key}: {error}"})
        else:
            _reply(client, {"sshd": "restarted"} if restarted else {})

    def _restart_inheritors(self, key: str) -> bool:
        """Restart processes that inherit the setting only at startup. Return whether sshd was restarted."""
        if key in _RESTARTS_TERMUX:
            while alive := self._alive():  # new processes may have started meanwhile
                self._kill_and_wait(alive)
            self._start_termux()
            return True
        return key in _RESTARTS_SSHD and self._restart_sshd()

    def _restart_sshd(self) -> bool:
        """Restart sshd if it is running. If a script also restarts it, that one finds the port in use and exits."""
        listening = self._listeners()
        self._kill_and_wait(listening)
        if listening:
            self._start_sshd()
        return bool(listening)

    def _kill_and_wait(self, processes: Sequence[Process]) -> None:
        """Kill processes and wait until all have exited."""
        for process in processes:
            kill(process.pid, signal.SIGKILL)
        pids = {process.pid for process in processes}
        while pids & {process.pid for process in self._alive()}:
            time.sleep(_POLL_S)
            self._reap_children()

    def _alive(self) -> list[Process]:
        return [process for process in descendants(os.getpid()) if not process.is_zombie]

    def _exec(self, message: dict[str, Any], files: list[int]) -> None:
        client = socket.socket(fileno=files[0])
        pid = self._spawn(message["argv"], app_environment(self.paths), files[1:])
        for file in files[1:]:
            os.close(file)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, lambda _: self._hang_up(pid))

    def _exec_in_terminal(self, message: dict[str, Any], client: socket.socket) -> None:
        """Run a program in an unattended terminal. Reply to the client when the terminal shows the expected text."""
        parent, child = os.openpty()
        self._spawn(message["argv"], app_environment(self.paths), [child, child, child])
        os.close(child)
        terminal = Terminal(parent, message["until"], client)
        self._selector.register(parent, selectors.EVENT_READ, lambda _: self._read_terminal(terminal))

    def _read_terminal(self, terminal: Terminal) -> None:
        if not terminal.read():
            self._selector.unregister(terminal.file)
            os.close(terminal.file)

    def _spawn(self, argv: Sequence[str], environment: Mapping[str, str], stdio: Sequence[int]) -> int:
        return spawn(argv, environment, stdio, self.become_user, self.paths.home)

    def _hang_up(self, pid: int) -> None:
        """The client disconnected: send SIGHUP, as a closed terminal does."""
        self._unregister_client(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGHUP)

    def _unregister_client(self, pid: int) -> socket.socket | None:
        client = self._clients.pop(pid, None)
        if client is not None:
            self._selector.unregister(client)
        return client

    def _on_child_exit(self, wake: socket.socket) -> None:
        wake.recv(4096)
        self._reap_children()

    def _reap_children(self) -> None:
        """Reap exited children and send their exit codes to the waiting clients."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if client := self._unregister_client(pid):
                _reply(client, {"exit": exit_code(status)})

    def _signal_sshd(self, number: signal.Signals) -> None:
        """Signal the listening sshd only. Sessions survive, as they do when Android kills the listener."""
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
    """An unattended pseudo-terminal, watched for an expected text."""

    file: int
    until: str
    client: socket.socket | None
    _output: str = ""

    def read(self) -> bool:
        """Read output and notify the client once the expected text appears. Return False when the program exits."""
        try:
            self._output += os.read(self.file, 4096).decode(errors="replace")
        except OSError:  # EIO: the other end is closed
            self._notify({"error": f"the program exited before the expected prompt: {self._output.strip()[-500:]}"})
            return False
        if self.until in self._output:
            self._notify({})
        return True

    def _notify(self, message: dict[str, Any]) -> None:
        if self.client is not None:
            _reply(self.client, message)
            self.client = None


def _reply(client: socket.socket, message: dict[str, Any]) -> None:
    with client, contextlib.suppress(OSError):  # the client may have disconnected
        ipc.send(client, message)
