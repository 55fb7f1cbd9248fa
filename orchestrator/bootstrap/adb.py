"""The real `adb` client, one call at a time: bounded in time and output, and what it says told in our words.

`adb shell` joins its arguments with blanks and gives the line to the phone's shell: `Device.shell` quotes every word.
What comes back is the phone's: whoever shows it makes it harmless first, whoever uses it checks it against a grammar.
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
from orchestrator.fleet.sanitize import last_lines
from phone_agent.contract.errors import ErrorCode

_LARGEST_OUTPUT: Final = 4 * 2**20
_SECONDS: Final = 30.0
_START_SECONDS: Final = 20.0
_ONLINE: Final = "device"


class AdbError(PhoneError):
    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.ADB_FAILED, remedy: str | None = None) -> None:
        super().__init__(message, code=code, phase="adb", remedy=remedy)


class GoneError(AdbError):
    """The phone is not, or no longer, at the end of the cable."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, code=ErrorCode.USB_DISCONNECTED, remedy=remedy)


@dataclass(frozen=True)
class Attached:
    """A line of `adb devices`."""

    name: str  # the serial number; HOST:PORT where adb was told to connect there
    state: str

    @property
    def online(self) -> bool:
        return self.state == _ONLINE


@dataclass(frozen=True)
class Done:
    rc: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.rc == 0

    @property
    def said(self) -> str:
        """Its last words, wherever it said them."""
        return last_lines(self.stderr, 2) or last_lines(self.stdout, 2) or f"exit code {self.rc}"


class Adb:
    def __init__(self, program: str) -> None:
        self._program = program

    @classmethod
    def find(cls) -> Adb:
        """Raises UsageError when there is none, or its server does not start."""
        program = shutil.which("adb")
        if program is None:
            raise UsageError("there is no adb on this computer", remedy="apt-get install adb")
        adb = cls(program)
        # Without pipes: the server it starts would hold them open for ever.
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(
                [program, "start-server"], stdin=quiet, stdout=quiet, stderr=quiet, timeout=_START_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"adb's server does not start: {error}", remedy="adb kill-server; adb start-server"
            ) from error
        return adb

    def attached(self) -> tuple[Attached, ...]:
        return parse_devices(self.run("devices").stdout)

    def connect(self, name: str) -> None:
        """Asks the server to call a phone that is reached over a network; `attached` shows what became of it."""
        with contextlib.suppress(AdbError):
            self.run("connect", name, timeout=_START_SECONDS)

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = _SECONDS) -> Done:
        return _bounded([self._program, *arguments], stdin, timeout)

    def device(self, name: str) -> Device:
        return Device(self, name)


@dataclass(frozen=True)
class Device:
    adb: Adb
    name: str

    def run(self, *arguments: str, stdin: bytes = b"", timeout: float = _SECONDS) -> Done:
        """Raises GoneError when it failed because the phone went away."""
        done = self.adb.run("-s", self.name, *arguments, stdin=stdin, timeout=timeout)
        if not done.ok and not self.online:
            raise GoneError(
                f"the phone is gone from the USB bus: {done.said}",
                remedy="check cable and hub, then run clusterctl bootstrap again: it goes on where it was",
            )
        return done

    def shell(self, *words: str, stdin: bytes = b"", timeout: float = _SECONDS) -> Done:
        return self.run(*shell_arguments(*words), stdin=stdin, timeout=timeout)

    @property
    def online(self) -> bool:
        return any(each.online for each in self.adb.attached() if each.name == self.name)


def shell_arguments(*words: str) -> tuple[str, str, str]:
    """-T: no terminal, so that bytes pass as they are and the exit code comes back."""
    line = shlex.join(words)
    if "\0" in line:
        raise ValueError("a command cannot contain NUL")
    return "shell", "-T", line


def parse_devices(text: str) -> tuple[Attached, ...]:
    """`SERIAL<tab>STATE`; lines about the server itself and the heading are passed over."""
    pairs = (line.split("\t", 1) for line in text.splitlines() if "\t" in line and not line.startswith("*"))
    return tuple(Attached(name.strip(), state.strip()) for name, state in pairs)


def _bounded(argv: list[str], stdin: bytes, timeout: float) -> Done:
    """What a program said; ended when it takes too long or says too much."""
    pipe = subprocess.PIPE
    source = pipe if stdin else subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, stdin=source, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise AdbError(f"adb does not start: {error}", remedy="apt-get install --reinstall adb") from error
    late = threading.Event()

    def end() -> None:
        late.set()
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
    if late.is_set():
        raise AdbError(
            f"{_short(argv)}: no end after {timeout:g} s",
            code=ErrorCode.TIMED_OUT,
            remedy="plug the phone out and in again; if it stays so, restart the phone",
        )
    if out.too_much or err.too_much:
        raise AdbError(
            f"{_short(argv)}: more than {_LARGEST_OUTPUT // 2**20} MiB of output", code=ErrorCode.TOO_MUCH_OUTPUT
        )
    return Done(process.returncode, out.text, err.text)


class _Reader(threading.Thread):
    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert stream is not None  # noqa: S101  (both are pipes)
        self._process = process
        self._stream = stream
        self._data = b""
        self.start()

    def run(self) -> None:
        self._data = self._stream.read(_LARGEST_OUTPUT + 1)
        if self.too_much:
            self._process.kill()

    @property
    def too_much(self) -> bool:
        return len(self._data) > _LARGEST_OUTPUT

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace").replace("\r\n", "\n")


def _short(argv: list[str]) -> str:
    line = " ".join(["adb", *argv[1:]])
    return last_lines(line if len(line) <= 100 else f"{line[:99]}…", 1)
