"""Every phone's files of a run, brought to this computer, and the one story they tell together."""

from __future__ import annotations

import binascii
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import Outcomes
from orchestrator.inventory.model import Phone
from orchestrator.logs.timeline import write_timeline
from orchestrator.logs.unpack import DEFAULT_LIMITS, Limits, Unpacked, unpack
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

# Lines of base64, because lines are what a stream from a phone is made of and bounded by. Files of later attempts get
# their number into their names: attempt-1/events.jsonl arrives as events.1.jsonl.
SEND = f"""\
cd "{layout.RUNS}/$1" || exit 3
shopt -s nullglob
files=(*.json *.jsonl *.log hostfil[e] attempt-*/{{*.json,*.jsonl,*.log,hostfil[e]}})
tar --format=ustar --transform='s,^attempt-\\([0-9]*\\)/\\([a-z]*\\),\\2.\\1,' -cf - -- "${{files[@]}}" | base64 -w 8192
"""
_NO_SUCH_RUN = 3
_SILENCE_S = 30.0


@dataclass(frozen=True)
class Collected:
    directory: Path
    outcomes: Outcomes[Unpacked]
    kept: tuple[Phone, ...]  # not had this time, but still there from an earlier time
    lines: int
    archive: Path | None = None

    @property
    def whole(self) -> bool:
        return all(outcome.value is not None and outcome.value.whole for outcome in self.outcomes)


def collect(
    fleet: Fleet,
    run_id: str,
    out: Path,
    *,
    archive: bool = False,
    on_done: Callable[[Any], None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Collected:
    """Fills `out`/<run id>: all of it is made aside and takes the old one's place at once."""
    final = out / run_id
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{run_id}-", dir=out) as scratch:
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        outcomes = fleet.map(lambda phone: collect_phone(phone, run_id, fresh, limits), on_done=on_done)
        kept = _keep_earlier([failure.phone for failure in outcomes.failures], final, fresh)
        lines = write_timeline(fresh, {phone.name: phone.where for phone in fleet.phones})
        _swap(fresh, final, Path(scratch) / "old")
    return Collected(final, outcomes, kept, lines, _archive(final) if archive else None)


def collect_phone(connection: PhoneConnection, run_id: str, directory: Path, limits: Limits) -> Unpacked:
    with tempfile.TemporaryDirectory(prefix=".", dir=directory) as scratch:
        arriving = Path(scratch) / "files"
        arriving.mkdir()
        troubles: list[str] = []
        with connection.open_stream(["bash", "-c", SEND, "bash", run_id], silence=_SILENCE_S) as stream:
            unpacked = unpack(_decoded(stream, troubles), arriving, limits)
        unpacked.notes += troubles
        if not unpacked.files:
            raise _nothing_came(stream.rc, unpacked, run_id)
        arriving.rename(directory / connection.phone.name)
    return unpacked


def _nothing_came(rc: int | None, unpacked: Unpacked, run_id: str) -> PhoneError:
    if rc == _NO_SUCH_RUN:
        return PhoneError(f"has no files of {run_id}", code=ErrorCode.NO_SUCH_RUN)
    why = "; ".join(unpacked.notes[-2:] or ["nothing came"])
    return PhoneError(f"sent no files: {why}", code=ErrorCode.BAD_ANSWER)


def _decoded(lines: Iterable[bytes], troubles: list[str]) -> Iterator[bytes]:
    """Ends at the first trouble: what had come until then is kept."""
    try:
        for line in lines:
            yield binascii.a2b_base64(line, strict_mode=True)
    except binascii.Error:
        troubles.append("what it sent is not base64")
    except PhoneError as error:
        troubles.append(error.message)


def _keep_earlier(missing: Sequence[Phone], final: Path, fresh: Path) -> tuple[Phone, ...]:
    """A phone that died since the last time does not take its logs along."""
    kept = [phone for phone in missing if (final / phone.name).is_dir() and not (fresh / phone.name).exists()]
    for phone in kept:
        shutil.copytree(final / phone.name, fresh / phone.name)
    return tuple(kept)


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
