"""Datasets arrive here, and go on to the next phone of the switch while they do.

The host sends one stream to the first phone of a switch: a line of JSON, then the files one after the other. Each phone
keeps what is meant for it and passes the rest on, as it comes, to the next phone of the route over ssh. So the host's
link carries every byte once a switch, and all phones of a switch are done about when the first one is. A phone that
fails does not keep those before it from going on; those after it get their files in another round.

Every file is checked against its sha256 before it gets its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from phone_agent.contract import layout
from phone_agent.contract.dataset_delivery import RECEIVE_COMMAND, Delivery, TransferInterruptedError, read_delivery
from phone_agent.contract.dataset_manifest import (
    MANIFEST_FILE,
    SHARD_NAME,
    DatasetManifest,
    ManifestError,
    ShardFile,
    parse_manifest,
)
from phone_agent.contract.errors import AgentError, ErrorCode, code_of
from phone_agent.contract.files import read_json, write_json
from phone_agent.data import locks

PIECE = 256 * 1024
AHEAD = 128  # pieces that may wait for the next phone: a hop that stalls does not hold up those before it
# Seconds without a piece taken: the next phone is given up. Longer for those it has after it, which it gives up first.
PATIENCE, PATIENCE_EACH = 60.0, 10.0
SLOWEST = 1 << 20  # bytes a second at which what still waits along the chain arrives, at the least
VERIFIED = ".verified.json"  # what was checked, and size and time of the file then
PART = ".part"
# A phone that says nothing for so long is gone: those before it in the chain go on without it.
SSH = ("ssh", "-T", "-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3", "-o", "Compression=no")

Answer = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Failure:
    code: ErrorCode
    message: str
    damaged: str | None = None  # the file whose sha256 is not the one in the manifest


def receive(stream: BinaryIO, answer: Answer) -> None:
    """Tells, for this phone and those after it that were reached, what became of it."""
    delivery = read_delivery(stream)
    own, rest = delivery.route[0], Delivery(delivery.manifest, delivery.route[1:])
    following = _Following(rest) if rest.route else None
    try:
        with _keeping(delivery.manifest) as keeper:
            for file in delivery.files:
                _pass_on(stream, file, keeper if file.name in own.files else None, following)
        answer(_answered(own.phone, len(own.files), keeper.failure))
    except AgentError as error:
        answer(_answered(own.phone, 0, Failure(error.code, str(error))))
        if not isinstance(error, TransferInterruptedError):
            _pass_all_on(stream, delivery, following)
    finally:
        if following:
            following.finish(answer)


def _answered(phone: str, stored: int, failure: Failure | None) -> dict[str, Any]:
    document: dict[str, Any] = {"phone": phone, "stored": stored, "error": None}
    if failure:
        document |= {"error": failure.message, "code": failure.code, "damaged": failure.damaged}
    return document


def _pass_on(stream: BinaryIO, file: ShardFile, keeper: _Keeper | None, following: _Following | None) -> None:
    if keeper:
        keeper.begin(file)
    left = file.bytes
    while left:
        piece = stream.read(min(PIECE, left))
        if not piece:
            raise TransferInterruptedError
        left -= len(piece)
        if following and file.name in following.files:
            following.send(piece)
        if keeper:
            keeper.write(piece)
    if keeper:
        keeper.end()


def _pass_all_on(stream: BinaryIO, delivery: Delivery, following: _Following | None) -> None:
    """This phone cannot keep anything, but the others may."""
    with contextlib.suppress(TransferInterruptedError):  # told by those who wait for the rest
        for file in delivery.files:
            _pass_on(stream, file, None, following)


class _Keeper:
    """Writes this phone's files. When that fails once, it stops trying and says why in the end."""

    def __init__(self, directory: Path, verified: dict[str, Any]) -> None:
        self.failure: Failure | None = None
        self._directory, self._verified = directory, verified
        self._file: IO[bytes] | None = None

    def begin(self, file: ShardFile) -> None:
        self._wanted, self._digest = file, hashlib.sha256()
        self._path = self._directory / f".{file.name}{PART}"
        self._attempt(self._open)

    def write(self, piece: bytes) -> None:
        if self._file:
            self._digest.update(piece)
            self._attempt(lambda: self._file and self._file.write(piece))

    def end(self) -> None:
        self._attempt(self._accept)

    def finish(self) -> None:
        _note(self._directory, self._verified)

    def abandon(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):  # a full disk has no room for the rest either
                self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)

    def _open(self) -> None:
        self._file = self._path.open("wb")

    def _accept(self) -> None:
        if self._file is None:
            return
        self._file.close()
        if self._digest.hexdigest() != self._wanted.sha256:
            name = self._wanted.name
            self.failure = Failure(ErrorCode.DATA_DAMAGED, f"{name} arrived damaged: push again", damaged=name)
            self.abandon()
            return
        self._file = None
        target = self._directory / self._wanted.name
        self._path.replace(target)
        self._verified[self._wanted.name] = [*_stamp(target), self._wanted.sha256]

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.failure:
            return
        try:
            action()
        except OSError as error:
            self.failure = Failure(code_of(error), f"{self._wanted.name} cannot be written: {error.strerror}")
            self.abandon()


@contextmanager
def _keeping(manifest: DatasetManifest) -> Iterator[_Keeper]:
    directory = layout.local(layout.dataset_dir(manifest.name))
    with locks.exclusive(directory):
        try:
            _prepare(directory, manifest)
        except OSError as error:
            raise AgentError(f"{directory} is not writable: {error.strerror}", code=code_of(error)) from None
        keeper = _Keeper(directory, _verified(directory))
        try:
            yield keeper
        finally:
            keeper.abandon()
            keeper.finish()


def _prepare(directory: Path, manifest: DatasetManifest) -> None:
    names = {file.name for file in manifest.files}
    for path in directory.iterdir():
        if path.name.endswith(PART) or (SHARD_NAME.fullmatch(path.name) and path.name not in names):
            path.unlink()
    write_json(directory / MANIFEST_FILE, manifest.to_json())


class _Following:
    """The next phone of the route, fed by a thread: writing here does not wait for it, up to a point."""

    def __init__(self, delivery: Delivery) -> None:
        self.files = {file.name for file in delivery.files}
        self._stop = delivery.route[0]
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        argv = [*SSH, "-p", str(self._stop.port), "--", self._stop.address, RECEIVE_COMMAND]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints)
        self._pieces: queue.Queue[bytes | None] = queue.Queue(AHEAD)
        self._patience = PATIENCE + PATIENCE_EACH * (len(delivery.route) - 1)
        self._last_patience = self._patience + len(delivery.route) * AHEAD * PIECE / SLOWEST
        self._given_up = ""
        self._thread = threading.Thread(target=self._feed, args=(delivery.line(),), daemon=True)
        self._thread.start()

    def send(self, piece: bytes | None) -> None:
        try:
            self._pieces.put(piece, timeout=self._patience)
        except queue.Full:
            self._give_up(f"it accepted no data for {self._patience:.0f} s")
            self._pieces.put(piece)

    def finish(self, answer: Answer) -> None:
        """Relays what it and those after it tell of themselves."""
        why = f"it did not finish within {self._last_patience:.0f} s of the last data"
        limit = threading.Timer(self._last_patience, self._give_up, [why])
        limit.start()
        try:
            told, code = self._listen(answer)
        finally:
            limit.cancel()
        if not told:
            message = f"unreachable from the previous phone in the chain: {self._reason(code)}"
            answer(_answered(self._stop.phone, 0, Failure(ErrorCode.TRANSFER_INTERRUPTED, message)))
        self._complaints.close()

    def _listen(self, answer: Answer) -> tuple[bool, int]:
        """Whether it told of itself, and how its ssh ended."""
        self.send(None)
        self._thread.join()
        told = False
        if output := self._process.stdout:
            with output:
                for line in output:
                    told |= self._relay(line, answer)
        return told, self._process.wait()

    def _give_up(self, why: str) -> None:
        """Whoever feeds it now finds it gone, and takes pieces again; whoever listens to it, its end."""
        self._given_up = why
        self._process.kill()

    def _reason(self, code: int) -> str:
        if self._given_up:
            return self._given_up
        self._complaints.seek(0)
        said = self._complaints.read(4096).decode("utf-8", "replace").strip().splitlines()
        return said[-1] if said else f"ssh failed with exit code {code}"

    def _relay(self, line: bytes, answer: Answer) -> bool:
        """Whether it was about the next phone itself."""
        try:
            told = json.loads(line)
            document = {name: told[name] for name in ("phone", "stored", "error")}
            answer(document | {name: told[name] for name in ("code", "damaged") if name in told})
        except (ValueError, KeyError, TypeError):
            return False
        return bool(told["phone"] == self._stop.phone)

    def _feed(self, header: bytes) -> None:
        """Goes on taking pieces when the phone is gone, so that nobody waits for it."""
        pipe = self._process.stdin
        alive = _written(pipe, header)
        while (piece := self._pieces.get()) is not None:
            alive = alive and _written(pipe, piece)
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def _written(pipe: IO[bytes] | None, piece: bytes) -> bool:
    try:
        if pipe:
            pipe.write(piece)
    except OSError:
        return False
    return True


def held(name: str, *, verify: bool) -> dict[str, Any]:
    """What lies here under that name, its files by sha256; computed again where a file or its time changed.

    A file that cannot be read is as good as none: left out, it is sent again, into another place of the flash."""
    directory = layout.local(layout.dataset_dir(name))
    verified = {} if verify else _verified(directory)
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("*.shard")) if directory.is_dir() else ():
        with contextlib.suppress(OSError):
            found[path.name] = _checked(path, verified.get(path.name))
    if directory.is_dir():
        _note(directory, found)
    disk = os.statvfs(Path.home())
    return {
        "digest": _digest(directory),
        "free_bytes": disk.f_bavail * disk.f_frsize,
        "files": {name: known[2] for name, known in found.items()},
    }


def _checked(path: Path, known: object) -> list[Any]:
    """Size, time and sha256, which is believed to be what is known if size and time are."""
    stamp = _stamp(path)
    if isinstance(known, list) and known[:2] == stamp:
        return known
    with path.open("rb") as file:
        return [*stamp, hashlib.file_digest(file, "sha256").hexdigest()]


def _digest(directory: Path) -> str | None:
    try:
        return parse_manifest(read_json(directory / MANIFEST_FILE)).digest
    except ManifestError:
        return None


def remove(name: str) -> bool:
    """Whether there was one."""
    import shutil

    directory = layout.local(layout.dataset_dir(name))
    if not directory.is_dir():
        return False
    with locks.exclusive(directory):
        shutil.rmtree(directory)
    return True


def _verified(directory: Path) -> dict[str, Any]:
    raw = read_json(directory / VERIFIED)
    return raw if isinstance(raw, dict) else {}


def _note(directory: Path, verified: dict[str, Any]) -> None:
    """A full disk costs only the time to read files again."""
    with contextlib.suppress(OSError):
        write_json(directory / VERIFIED, verified)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
