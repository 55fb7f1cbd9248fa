"""From what apt, dpkg and pip printed to what a person can do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from phone_agent.contract.errors import ErrorCode


@dataclass(frozen=True)
class Cause:
    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    code: ErrorCode = ErrorCode.PACKAGE_FAILED


@dataclass(frozen=True)
class Explanation:
    code: ErrorCode
    message: str  # with the telling line of the log
    remedy: str | None = None  # what to do


def _cause(pattern: str, meaning: str, remedy: str, code: ErrorCode = ErrorCode.PACKAGE_FAILED) -> Cause:
    return Cause(re.compile(pattern, re.IGNORECASE), meaning, remedy, code)


# The first that matches counts: a full disk or a broken library shows as many other errors too.
CAUSES: Final = (
    _cause(
        r"no space left on device|don't have enough free space|cannot copy extracted data.*space",
        "the phone's storage is full",
        "free space on the phone (Settings, Device care, Storage; in Termux: apt-get clean), then run it again",
        ErrorCode.DISK_FULL,
    ),
    _cause(
        r"E: index_mismatch: ",
        "the package index that reached the phone is not the one this computer serves: something on the wired network "
        "answers in its place",
        "find the device with this computer's wired address, or the proxy in the phone's apt settings; nothing was "
        "installed",
        ErrorCode.INDEX_MISMATCH,
    ),
    _cause(
        r"cannot link executable",
        "a partial upgrade left a program without its libraries",
        "on the phone, in Termux: apt update && apt full-upgrade; if that does not start either, set Termux up again",
    ),
    _cause(
        r"could not get lock|unable to acquire the dpkg frontend lock|frontend lock (was|is) locked by another process",
        "another package manager is running on the phone",
        "wait for it or close it on the phone (in Termux: pgrep -a apt), then run it again",
    ),
    _cause(
        r"dpkg was interrupted",
        "an earlier installation was interrupted",
        "on the phone, in Termux: dpkg --configure -a",
    ),
    _cause(
        r"could not connect to|unable to connect to|failed to fetch|connection timed out|connection refused|"
        r"connection failed|could not resolve|some index files failed to download",
        "the phone cannot reach this computer's package mirror",
        "check that the phone can open connections to this computer: a firewall here, or Wi-Fi as the phone's default "
        "network (turn Wi-Fi and mobile data off); then run it again",
    ),
    _cause(r"hash sum mismatch", "a package arrived damaged", "check the phone's cable and adapter, then run it again"),
    _cause(
        r"unmet dependencies|held broken packages|unable to correct problems",
        "the packages on the phone do not fit together",
        "on the phone, in Termux: apt --fix-broken install; packages put on hold there stand in the way",
    ),
)


def explain(log: str) -> Explanation:
    for cause in CAUSES:
        if found := cause.pattern.search(log):
            message = f"{cause.meaning} ({_line_around(log, found.start())})"
            return Explanation(cause.code, message, cause.remedy)
    return Explanation(ErrorCode.PACKAGE_FAILED, _last_words(log))


def _line_around(log: str, position: int) -> str:
    start = log.rfind("\n", 0, position) + 1
    end = log.find("\n", position)
    return log[start : end if end >= 0 else None].strip()[:240]


def _last_words(log: str) -> str:
    """apt and dpkg mark their errors; without a mark, the last lines have to do."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("E:", "dpkg: error", "ERROR:", "error:"))]
    return "; ".join((marked or lines or ["it printed nothing"])[-3:])[:400]
