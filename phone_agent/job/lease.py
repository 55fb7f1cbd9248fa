"""Which computer looks after a run: only that one may start it again or stop it, as long as it is heard of."""

from __future__ import annotations

import errno
import fcntl
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, ErrorCode

SECONDS = 30.0
RENEW_S = 10.0


class LeasedError(AgentError):
    """Somebody else looks after the run."""

    code = ErrorCode.LEASE_HELD


@dataclass(frozen=True)
class Lease:
    """`until` is by this phone's own clock since it was switched on, which nobody sets."""

    holder: str
    until: float

    def left_s(self, now: float) -> float:
        """None is left of one from before a restart, when the clock was further."""
        left = self.until - now
        return left if 0 < left <= SECONDS else 0.0


def take(run: Path, holder: str, clock: Callable[[], float] | None = None) -> Lease | None:
    """For a while. None: it is ours, or the disk is too full to remember whose it is; else whose it is."""
    try:
        return _take(run, holder, (clock or _since_boot)())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return None


def _take(run: Path, holder: str, now: float) -> Lease | None:
    with (run / layout.LEASE_FILE).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        there = _parse(file.read(4096))
        if there is not None and there.holder != holder and there.left_s(now):
            return there
        file.seek(0)
        file.truncate()
        json.dump(asdict(Lease(holder, now + SECONDS)), file)
    return None


def require(run: Path, holder: str | None) -> None:
    """Before something is done to a run. Without a holder there is nobody to ask for: the lease is left alone."""
    if holder is not None and (other := take(run, holder)):
        left = other.left_s(_since_boot())
        raise LeasedError(f"{other.holder} looks after run {run.name}, for {left:.0f} s more at least")


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _parse(text: str) -> Lease | None:
    try:
        raw: dict[str, Any] = json.loads(text)
        return Lease(str(raw["holder"]), float(raw["until"]))
    except (ValueError, TypeError, KeyError):
        return None
