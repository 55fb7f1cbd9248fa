"""Why an attempt of a run failed: the code of a diagnosis, as incidents and run records store it."""

from __future__ import annotations

from enum import StrEnum

from phone_agent.contract.errors import ErrorCode


class Cause(StrEnum):
    PHONE_UNREACHABLE = "phone_unreachable"  # cable, switch or power
    SSHD_DOWN = "sshd_down"
    AGENT_FAILED = "agent_failed"  # the phone answers, its agent fails
    LOST_CONTACT = "lost_contact"  # between the head phone and another one
    PHONE_IN_USE = "phone_in_use"  # by another run
    LOGIN_FAILED = "login_failed"  # of the head phone, on another one

    RANK_MISSING = "rank_missing"
    RANK_FROZEN = "rank_frozen"
    RANK_KILLED = "rank_killed"  # by SIGKILL
    RANK_CRASHED = "rank_crashed"  # by any other signal
    RANK_FAILED = "rank_failed"  # it reported an error, or ended with an error code
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"

    NO_PROGRESS = "no_progress"  # although every rank is alive
    STATE_LOST = "state_lost"  # no phone holds the state in memory that the attempt was to resume from
    NOT_FOLLOWED = "not_followed"  # the agent on the head phone refuses to report the run
    RESTART_FAILED = "restart_failed"
    TOO_FEW_PHONES = "too_few_phones"
    UNKNOWN = "unknown"


def cause_of(code: ErrorCode, otherwise: Cause) -> Cause:
    """The cause behind an error code; `otherwise` if the code is less specific."""
    causes = {
        ErrorCode.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
        ErrorCode.DISK_FULL: Cause.DISK_FULL,
        ErrorCode.STATE_LOST: Cause.STATE_LOST,
    }
    return causes.get(code, otherwise)


def parse_cause(raw: object) -> Cause | None:
    """The cause in a document; one that this release does not know is UNKNOWN."""
    if raw is None:
        return None
    try:
        return Cause(str(raw))
    except ValueError:
        return Cause.UNKNOWN
