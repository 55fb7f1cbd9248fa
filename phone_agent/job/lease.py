"""The lease of a run: only the host that holds it may restart or stop the run. It expires unless it is renewed."""

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

DURATION_S = 30.0
RENEW_S = 10.0


class LeaseHeldError(AgentError):
    """Another host holds the lease."""

    code = ErrorCode.LEASE_HELD


@dataclass(frozen=True)
class Lease:
    """`until` is seconds since this phone booted: that clock is never set."""

    holder: str
    until: float

    def left_s(self, now: float) -> float:
        """0 for a lease from before a reboot, when the clock was ahead."""
        left = self.until - now
        return left if 0 < left <= DURATION_S else 0.0


def take(run: Path, holder: str, clock: Callable[[], float] | None = None) -> Lease | None:
    """Take or renew the lease. None on success, or if the disk is too full to record it; else the lease of the other
    holder."""
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
        current = _parse(file.read(4096))
        if current is not None and current.holder != holder and current.left_s(now):
            return current
        file.seek(0)
        file.truncate()
        json.dump(asdict(Lease(holder, now + DURATION_S)), file)
    return None


def require(run: Path, holder: str | None) -> None:
    """Raise LeaseHeldError if another host holds the lease. Without a holder, the lease is not checked."""
    if holder is not None and (other := take(run, holder)):
        left = other.left_s(_since_boot())
        raise LeaseHeldError(f"{other.holder} supervises run {run.name}, for at least {left:.0f} s more")


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _parse(text: str) -> Lease | None:
    try:
        raw: dict[str, Any] = json.loads(text)
        return Lease(str(raw["holder"]), float(raw["until"]))
    except (ValueError, TypeError, KeyError):
        return None
