"""Known failures of apt, dpkg and pip: from their output to cause and remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from phone_agent.contract.errors import ErrorCode


@dataclass(frozen=True)
class FailurePattern:
    pattern: re.Pattern[str]
    meaning: str
    remedy: str
    code: ErrorCode = ErrorCode.PACKAGE_FAILED


@dataclass(frozen=True)
class FailureExplanation:
    code: ErrorCode
    message: str  # quotes the line of the log that matched
    remedy: str | None = None


def _pattern(regex: str, meaning: str, remedy: str, code: ErrorCode = ErrorCode.PACKAGE_FAILED) -> FailurePattern:
    return FailurePattern(re.compile(regex, re.IGNORECASE), meaning, remedy, code)


# The first match wins: a full disk or a broken library also causes many other errors.
PATTERNS: Final = (
    _pattern(
        r"no space left on device|don't have enough free space|cannot copy extracted data.*space",
        "the phone's storage is full",
        "free space on the phone (Settings, Device care, Storage; in Termux: apt-get clean), then retry",
        ErrorCode.DISK_FULL,
    ),
    _pattern(
        r"E: index_mismatch: ",
        "the phone received another package index than this computer serves: another device answers in its place",
        "look for a device that uses this computer's wired address, or a proxy in the phone's apt settings; nothing "
        "was installed",
        ErrorCode.INDEX_MISMATCH,
    ),
    _pattern(
        r"cannot link executable",
        "a partial upgrade left a program without its libraries",
        "on the phone, in Termux: apt update && apt full-upgrade; if that does not start either, reinstall Termux",
    ),
    _pattern(
        r"could not get lock|unable to acquire the dpkg frontend lock|frontend lock (was|is) locked by another process",
        "another package manager is running on the phone",
        "wait until it ends, or end it on the phone (in Termux: pgrep -a apt), then run the command again",
    ),
    _pattern(
        r"dpkg was interrupted",
        "an earlier installation was interrupted",
        "on the phone, in Termux: dpkg --configure -a",
    ),
    _pattern(
        r"could not connect to|unable to connect to|failed to fetch|connection timed out|connection refused|"
        r"connection failed|could not resolve|some index files failed to download",
        "the phone cannot reach this computer's package mirror",
        "allow connections from the phone in this computer's firewall, and turn off Wi-Fi and mobile data on the "
        "phone; then run the command again",
    ),
    _pattern(
        r"hash sum mismatch",
        "a package arrived damaged",
        "check the phone's cable and adapter, then run the command again",
    ),
    _pattern(
        r"unmet dependencies|held broken packages|unable to correct problems",
        "the packages on the phone have conflicting dependencies",
        "on the phone, in Termux: apt --fix-broken install; release packages that are on hold",
    ),
)


def explain_failure(log: str) -> FailureExplanation:
    for known in PATTERNS:
        if found := known.pattern.search(log):
            message = f"{known.meaning} ({_line_around(log, found.start())})"
            return FailureExplanation(known.code, message, known.remedy)
    return FailureExplanation(ErrorCode.PACKAGE_FAILED, _last_errors(log))


def _line_around(log: str, position: int) -> str:
    start = log.rfind("\n", 0, position) + 1
    end = log.find("\n", position)
    return log[start : end if end >= 0 else None].strip()[:240]


def _last_errors(log: str) -> str:
    """The last lines marked as errors; the last lines of the log if there are none."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("E:", "dpkg: error", "ERROR:", "error:"))]
    return "; ".join((marked or lines or ["no output"])[-3:])[:400]
