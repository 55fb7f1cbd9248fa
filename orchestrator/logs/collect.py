"""Collect the files of a run from all its phones, and merge their logs."""

from __future__ import annotations

import binascii
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcomes
from orchestrator.inventory.model import Phone
from orchestrator.logs.merged_log import write_merged_log
from orchestrator.logs.unpack import DEFAULT_LIMITS, Limits, UnpackResult, unpack
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

# Lines of base64, because streams from a phone consist of lines of bounded length. Files of later attempts get the
# number of the attempt into their names: attempt-1/events.jsonl arrives as events.1.jsonl.
SEND = f"""\
cd "{layout.RUNS}/$1" || exit 3
shopt -s nullglob
files=(*.json *.jsonl *.log hostfil[e] attempt-*/{{*.json,*.jsonl,*.log,hostfil[e]}})
tar --format=ustar --transform='s,^attempt-\\([0-9]*\\)/\\([a-z]*\\),\\2.\\1,' -cf - -- "${{files[@]}}" | base64 -w 8192
"""
_NO_SUCH_RUN = 3
_SILENCE_S = 30.0


@dataclass(frozen=True)
class CollectedLogs:
    directory: Path
    outcomes: Outcomes[UnpackResult]
    from_earlier: tuple[Phone, ...]  # phones that sent nothing now, but did in an earlier collection
    merged_lines: int
    archive: Path | None = None

    @property
    def complete(self) -> bool:
        return all(outcome.value is not None and outcome.value.complete for outcome in self.outcomes)


def collect_logs(
    fleet: Fleet,
    run_id: str,
    out: Path,
    *,
    archive: bool = False,
    on_done: Callable[[Any], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> CollectedLogs:
    """Fill `out`/<run id>. The directory is written aside and then replaces the old one at once."""
    final = out / run_id
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{run_id}-", dir=out) as scratch:
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        try:
            outcomes = fleet.map(lambda phone: collect_from_phone(phone, run_id, fresh, limits), on_done=on_done)
        finally:  # after an interruption, too: what has arrived stays
            from_earlier = _copy_earlier(fleet.phones, final, fresh)
            _swap(fresh, final, Path(scratch) / "old")
    lines = write_merged_log(final, {phone.name: phone.where for phone in fleet.phones})
    return CollectedLogs(final, outcomes, from_earlier, lines, _archive(final) if archive else None)


def collect_from_phone(connection: PhoneConnection, run_id: str, directory: Path, limits: Limits) -> UnpackResult:
    with tempfile.TemporaryDirectory(prefix=".", dir=directory) as scratch:
        arriving = Path(scratch) / "files"
        arriving.mkdir()
        errors: list[str] = []
        command = ["bash", "-c", SEND, "bash", run_id]
        with connection.open_stream(command, silence=_SILENCE_S, timeout=limits.seconds) as stream:
            unpacked = unpack(_decode(stream, errors), arriving, limits)
        unpacked.notes += errors
        if not unpacked.files:
            raise _no_files(stream.rc, unpacked, run_id)
        arriving.rename(directory / connection.phone.name)
    return unpacked


def _no_files(rc: int | None, unpacked: UnpackResult, run_id: str) -> PhoneError:
    if rc == _NO_SUCH_RUN:
        return PhoneError(f"has no files of {run_id}", code=ErrorCode.NO_SUCH_RUN)
    reason = "; ".join(unpacked.notes[-2:] or ["no data"])
    return PhoneError(f"sent no files: {reason}", code=ErrorCode.BAD_ANSWER)


def _decode(lines: Iterable[bytes], errors: list[str]) -> Iterator[bytes]:
    """Stop at the first error; everything before it is kept."""
    try:
        for line in lines:
            yield binascii.a2b_base64(line, strict_mode=True)
    except binascii.Error:
        errors.append("sent data that is not base64")
    except PhoneError as error:
        errors.append(error.message)


def _copy_earlier(phones: Iterable[Phone], final: Path, fresh: Path) -> tuple[Phone, ...]:
    """Keep the logs of phones that sent nothing now, but did in an earlier collection."""
    earlier = [phone for phone in phones if (final / phone.name).is_dir() and not (fresh / phone.name).exists()]
    for phone in earlier:
        shutil.copytree(final / phone.name, fresh / phone.name)
    return tuple(earlier)


def _swap(fresh: Path, final: Path, old: Path) -> None:
    if final.exists():
        final.rename(old)
    fresh.rename(final)


def _archive(directory: Path) -> Path:
    archive = directory.with_name(f"{directory.name}.tar.gz")
    partial = directory.with_name(f".{directory.name}.tar.gz.partial")
    with tarfile.open(partial, "w:gz") as tar:
        tar.add(directory, arcname=directory.name)
    partial.replace(archive)
    return archive
