"""Calls of the `adb` client, limited in time and output.

`adb shell` joins its arguments with blanks and passes the line to the phone's shell: `Device.shell` quotes every word.
Output of a phone is not trusted: sanitize it before showing it, validate it before using it.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import threading
from dataclasses import dataclass
from typing import IO, Final

from orchestrator.errors import PhoneError, UsageError
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines

_MAX_OUTPUT: Final = 4 * 2**20
_SECONDS: Final = 30.0
_START_SECONDS: Final = 20.0
_ONLINE: Final = "device"


class AdbError(PhoneError):
    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.ADB_FAILED, remedy: str | None = None) -> None:
        super().__init__(message, code=code, phase="adb", remedy=remedy)


class DisconnectedError(AdbError):
    """The phone is not on USB, or no longer."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, code=ErrorCode.USB_DISCONNECTED, remedy=remedy)


@dataclass(frozen=True)
class DeviceState:
    """A line of `adb devices`."""

    name: str  # the serial number; HOST:PORT of a phone reached over a network
    state: str

    @property
    def online(self) -> bool:
        return self.state == _ONLINE


@dataclass(frozen=True)
class AdbResult:
    rc: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.rc == 0

    @property
    def output(self) -> str:
        return self.stdout + self.stderr

    @property
    def summary(self) -> str:
        """The last lines of its error output, else of its output."""
        return last_lines(self.stderr, 2) or last_lines(self.stdout, 2) or f"exit code {self.rc}"


class Adb:
    def __init__(self, program: str) -> None:
        self._program = program

    @classmethod
    def find(cls) -> Adb:
        """Raises UsageError if adb is not installed or its server does not start."""
        program = shutil.which("adb")
        if program is None:
            raise UsageError("adb is not installed on this computer", remedy="apt-get install adb")
        adb = cls(program)
        # Without pipes: the server would inherit them and never close them.
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(
                [program, "start-server"], stdin=quiet, stdout=quiet, stderr=quiet, timeout=_START_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"the adb server does not start: {error}", remedy="adb kill-server; adb start-server"
            ) from error
        return adb

    def devices(self) -> tuple[DeviceState, ...]:
        return parse_devices(self.run("devices").stdout)

    def connect(self, name: str) -> None:
        """Ask the server to connect to a phone over a network; `devices` shows the outcome."""
        with contextlib.suppress(AdbError):
            self.run("connect", name, timeout=_START_SECONDS)

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = _SECONDS) -> AdbResult:
        return _run_bounded([self._program, *arguments], stdin, timeout)

    def device(self, name: str) -> Device:
        return Device(self, name)


@dataclass(frozen=True)
class Device:
    adb: Adb
    name: str

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = _SECONDS) -> AdbResult:
        """Raises DisconnectedError if the command failed because the phone disconnected."""
        result = self.adb.run("-s", self.name, *arguments, stdin=stdin, timeout=timeout)
        if not result.ok and not self.online:
            raise DisconnectedError(
                f"the phone disconnected from USB: {result.summary}",
                remedy="check cable and hub, then run clusterctl bootstrap again: it continues where it stopped",
            )
        return result

    def shell(self, *words: str, stdin: bytes = b"", timeout: float = _SECONDS) -> AdbResult:
        return self.run(*shell_arguments(*words), stdin=stdin, timeout=timeout)

    @property
    def online(self) -> bool:
        return any(each.online for each in self.adb.devices() if each.name == self.name)


def shell_arguments(*words: str) -> tuple[str, str, str]:
    """-T: without a terminal, output is not altered and the exit code is returned."""
    line = shlex.join(words)
    if "\0" in line:
        raise ValueError("a command cannot contain NUL")
    return "shell", "-T", line


def parse_devices(text: str) -> tuple[DeviceState, ...]:
    """Lines of the form `SERIAL<tab>STATE`; the heading and messages of the server are ignored."""
    pairs = (line.split("\t", 1) for line in text.splitlines() if "\t" in line and not line.startswith("*"))
    return tuple(DeviceState(name.strip(), state.strip()) for name, state in pairs)


def _run_bounded(argv: list[str], stdin: bytes, timeout: float) -> AdbResult:
    """Run a program; kill it if it exceeds the time or output limit."""
    pipe = subprocess.PIPE
    source = pipe if stdin else subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, stdin=source, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise AdbError(f"adb does not start: {error}", remedy="apt-get install --reinstall adb") from error
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(timeout, end)
    out, err = _Reader(process, process.stdout), _Reader(process, process.stderr)
    timer.start()
    try:
        with process:
            if process.stdin:
                with contextlib.suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(stdin)
            out.join()
            err.join()
    finally:
        timer.cancel()
        process.kill()
    if timed_out.is_set():
        raise AdbError(
            f"{_short(argv)}: not finished after {timeout:g} s",
            code=ErrorCode.TIMED_OUT,
            remedy="unplug the phone and plug it in again; if that does not help, restart the phone",
        )
    if out.exceeded or err.exceeded:
        raise AdbError(
            f"{_short(argv)}: more than {_MAX_OUTPUT // 2**20} MiB of output", code=ErrorCode.TOO_MUCH_OUTPUT
        )
    return AdbResult(process.returncode, out.text, err.text)


class _Reader(threading.Thread):
    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert stream is not None  # noqa: S101  (both are pipes)
        self._process = process
        self._stream = stream
        self._data = b""
        self.start()

    def run(self) -> None:
        self._data = self._stream.read(_MAX_OUTPUT + 1)
        if self.exceeded:
            self._process.kill()

    @property
    def exceeded(self) -> bool:
        return len(self._data) > _MAX_OUTPUT

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace").replace("\r\n", "\n")


def _short(argv: list[str]) -> str:
    line = " ".join(["adb", *argv[1:]])
    return last_lines(line if len(line) <= 100 else f"{line[:99]}…", 1)
