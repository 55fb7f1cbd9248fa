"""Receive a dataset and forward it to the next phone of the chain at the same time.

The host sends one stream to the first phone of each switch: a line of JSON, then the files in order. Each phone stores
its own files and forwards the stream over ssh to the next phone while it arrives. So the host's link carries every byte
once per switch, and all phones of a switch finish at about the same time. If a phone fails, the phones before it
continue; the phones after it get their files in another round.

A file gets its name only after its sha256 has been verified.
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

CHUNK_BYTES = 256 * 1024
MAX_QUEUED_CHUNKS = 128  # chunks queued for the next phone, so that a stalled phone does not hold up those before it
# Time-out if the next phone accepts no data. It grows with the phones after it, which time out first.
STALL_TIMEOUT_S, STALL_TIMEOUT_PER_PHONE_S = 60.0, 10.0
MIN_BYTES_PER_S = 1 << 20  # at which the data queued along the chain is expected to arrive
VERIFIED = ".verified.json"  # sha256 of each verified file, with its size and modification time
PART = ".part"
# ssh detects a lost phone within 9 s, so that the phones before it continue without it.
SSH = ("ssh", "-T", "-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3", "-o", "Compression=no")

Reply = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Failure:
    code: ErrorCode
    message: str
    damaged: str | None = None  # the file whose sha256 does not match the manifest


def receive(stream: BinaryIO, reply: Reply) -> None:
    """Store and forward one delivery. `reply` gets one result for this phone and for each reachable phone after it."""
    delivery = read_delivery(stream)
    own, rest = delivery.route[0], Delivery(delivery.manifest, delivery.route[1:])
    next_phone = _NextPhone(rest) if rest.route else None
    try:
        with _open_writer(delivery.manifest) as writer:
            for file in delivery.files:
                _transfer(stream, file, writer if file.name in own.files else None, next_phone)
        reply(_result(own.phone, len(own.files), writer.failure))
    except AgentError as error:
        reply(_result(own.phone, 0, Failure(error.code, str(error))))
        if not isinstance(error, TransferInterruptedError):
            _forward_all(stream, delivery, next_phone)
    finally:
        if next_phone:
            next_phone.finish(reply)


def _result(phone: str, stored: int, failure: Failure | None) -> dict[str, Any]:
    document: dict[str, Any] = {"phone": phone, "stored": stored, "error": None}
    if failure:
        document |= {"error": failure.message, "code": failure.code, "damaged": failure.damaged}
    return document


def _transfer(stream: BinaryIO, file: ShardFile, writer: _FileWriter | None, next_phone: _NextPhone | None) -> None:
    if writer:
        writer.begin(file)
    left = file.bytes
    while left:
        chunk = stream.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise TransferInterruptedError
        left -= len(chunk)
        if next_phone and file.name in next_phone.files:
            next_phone.send(chunk)
        if writer:
            writer.write(chunk)
    if writer:
        writer.end()


def _forward_all(stream: BinaryIO, delivery: Delivery, next_phone: _NextPhone | None) -> None:
    """Forward everything without storing it: this phone failed, but the others may not."""
    with contextlib.suppress(TransferInterruptedError):  # the phones that miss data report it
        for file in delivery.files:
            _transfer(stream, file, None, next_phone)


class _FileWriter:
    """Writes the files of this phone. After the first failure it writes nothing more; `failure` has the reason."""

    def __init__(self, directory: Path, verified: dict[str, Any]) -> None:
        self.failure: Failure | None = None
        self._directory, self._verified = directory, verified
        self._file: IO[bytes] | None = None

    def begin(self, file: ShardFile) -> None:
        self._expected, self._digest = file, hashlib.sha256()
        self._path = self._directory / f".{file.name}{PART}"
        self._attempt(self._open)

    def write(self, chunk: bytes) -> None:
        if self._file:
            self._digest.update(chunk)
            self._attempt(lambda: self._file and self._file.write(chunk))

    def end(self) -> None:
        self._attempt(self._verify_and_rename)

    def finish(self) -> None:
        """Also makes the renames durable: the directory is synced once for all files."""
        _save_verified(self._directory, self._verified)

    def abandon(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):  # a full disk fails here too
                self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)

    def _open(self) -> None:
        self._file = self._path.open("wb")

    def _verify_and_rename(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._digest.hexdigest() != self._expected.sha256:
            name = self._expected.name
            self.failure = Failure(ErrorCode.DATA_DAMAGED, f"{name} arrived damaged: push again", damaged=name)
            self.abandon()
            return
        self._file = None
        target = self._directory / self._expected.name
        self._path.replace(target)
        self._verified[self._expected.name] = [*_stamp(target), self._expected.sha256]

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.failure:
            return
        try:
            action()
        except OSError as error:
            self.failure = Failure(code_of(error), f"{self._expected.name} cannot be written: {error.strerror}")
            self.abandon()


@contextmanager
def _open_writer(manifest: DatasetManifest) -> Iterator[_FileWriter]:
    directory = layout.local(layout.dataset_dir(manifest.name))
    with locks.exclusive(directory):
        try:
            _prepare(directory, manifest)
        except OSError as error:
            raise AgentError(f"{directory} is not writable: {error.strerror}", code=code_of(error)) from None
        writer = _FileWriter(directory, _verified(directory))
        try:
            yield writer
        finally:
            writer.abandon()
            writer.finish()


def _prepare(directory: Path, manifest: DatasetManifest) -> None:
    names = {file.name for file in manifest.files}
    for path in directory.iterdir():
        if path.name.endswith(PART) or (SHARD_NAME.fullmatch(path.name) and path.name not in names):
            path.unlink()
    write_json(directory / MANIFEST_FILE, manifest.to_json())


class _NextPhone:
    """The next phone of the chain, fed by a thread through a bounded queue."""

    def __init__(self, delivery: Delivery) -> None:
        self.files = {file.name for file in delivery.files}
        self._hop = delivery.route[0]
        self._ssh_stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        argv = [*SSH, "-p", str(self._hop.port), "--", self._hop.address, RECEIVE_COMMAND]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._ssh_stderr)
        self._chunks: queue.Queue[bytes | None] = queue.Queue(MAX_QUEUED_CHUNKS)
        self._stall_timeout_s = STALL_TIMEOUT_S + STALL_TIMEOUT_PER_PHONE_S * (len(delivery.route) - 1)
        self._final_timeout_s = (
            self._stall_timeout_s + len(delivery.route) * MAX_QUEUED_CHUNKS * CHUNK_BYTES / MIN_BYTES_PER_S
        )
        self._abort_reason = ""
        self._thread = threading.Thread(target=self._feed, args=(delivery.line(),), daemon=True)
        self._thread.start()

    def send(self, chunk: bytes | None) -> None:
        try:
            self._chunks.put(chunk, timeout=self._stall_timeout_s)
        except queue.Full:
            self._abort(f"it accepted no data for {self._stall_timeout_s:.0f} s")
            self._chunks.put(chunk)

    def finish(self, reply: Reply) -> None:
        """Relay the results of the next phone and of those after it."""
        reason = f"it did not finish within {self._final_timeout_s:.0f} s of the last data"
        limit = threading.Timer(self._final_timeout_s, self._abort, [reason])
        limit.start()
        try:
            reported, code = self._relay_results(reply)
        finally:
            limit.cancel()
        if not reported:
            message = f"unreachable from the previous phone in the chain: {self._reason(code)}"
            reply(_result(self._hop.phone, 0, Failure(ErrorCode.TRANSFER_INTERRUPTED, message)))
        self._ssh_stderr.close()

    def _relay_results(self, reply: Reply) -> tuple[bool, int]:
        """Whether the next phone reported its own result, and the exit code of ssh."""
        self.send(None)
        self._thread.join()
        reported = False
        if output := self._process.stdout:
            with output:
                for line in output:
                    reported |= self._relay(line, reply)
        return reported, self._process.wait()

    def _abort(self, reason: str) -> None:
        """Kill ssh: the feeding thread drains the queue from now on, and reading the results ends."""
        self._abort_reason = reason
        self._process.kill()

    def _reason(self, code: int) -> str:
        if self._abort_reason:
            return self._abort_reason
        self._ssh_stderr.seek(0)
        lines = self._ssh_stderr.read(4096).decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"ssh failed with exit code {code}"

    def _relay(self, line: bytes, reply: Reply) -> bool:
        """Relay one result; whether it is the result of the next phone itself."""
        try:
            result = json.loads(line)
            document = {name: result[name] for name in ("phone", "stored", "error")}
            reply(document | {name: result[name] for name in ("code", "damaged") if name in result})
        except (ValueError, KeyError, TypeError):
            return False
        return bool(result["phone"] == self._hop.phone)

    def _feed(self, header: bytes) -> None:
        """Feed the next phone. Keeps draining the queue after the phone is lost, so that `send` does not block."""
        pipe = self._process.stdin
        alive = _write_to(pipe, header)
        while (chunk := self._chunks.get()) is not None:
            alive = alive and _write_to(pipe, chunk)
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def _write_to(pipe: IO[bytes] | None, chunk: bytes) -> bool:
    try:
        if pipe:
            pipe.write(chunk)
    except OSError:
        return False
    return True


def stored_files(name: str, *, verify: bool) -> dict[str, Any]:
    """The stored files of a dataset with their sha256, recomputed for files whose size or time changed.

    Unreadable files are left out, so that they are sent again and written to other flash blocks."""
    directory = layout.local(layout.dataset_dir(name))
    verified = {} if verify else _verified(directory)
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("*.shard")) if directory.is_dir() else ():
        with contextlib.suppress(OSError):
            found[path.name] = _checked(path, verified.get(path.name))
    if directory.is_dir():
        _save_verified(directory, found)
    disk = os.statvfs(Path.home())
    return {
        "digest": _digest(directory),
        "free_bytes": disk.f_bavail * disk.f_frsize,
        "files": {name: known[2] for name, known in found.items()},
    }


def _checked(path: Path, known: object) -> list[Any]:
    """Size, time and sha256. A known sha256 is reused if size and time are unchanged."""
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
    """Remove a dataset; whether it existed."""
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


def _save_verified(directory: Path, verified: dict[str, Any]) -> None:
    """A full disk is no error: the files are hashed again next time."""
    with contextlib.suppress(OSError):
        write_json(directory / VERIFIED, verified)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
