"""All assumptions about phones: those checked on the phone, and those that the host or several phones must check."""

from __future__ import annotations

from typing import Final

from phone_agent.api.measure import checks
from phone_agent.contract.assumptions import LAB_SETTING, Assumption, WiredNetwork

SESSION: Final = Assumption(
    "session",
    "A command over ssh has Termux's PATH, PREFIX and TMPDIR, and LD_LIBRARY_PATH is not set",
    required=True,
)
PRELOAD: Final = Assumption(
    "preload",
    "Over ssh, a script that begins with #!/usr/bin/env starts (LD_PRELOAD)",
    lab_caveat="uses this computer's sshd, configured to behave like Termux's",
)
CLOCK: Final = Assumption("clock", "The phone's clock is accurate to two seconds")
SCREEN_OFF: Final = Assumption(
    "screen-off",
    "With the screen off, processes started by sshd keep the big cores, and sleeps stay precise",
    lab_caveat=LAB_SETTING,
)
NEIGHBOR_LOGIN: Final = Assumption(
    "neighbor-login",
    "A phone logs in to the next phone over the wired network",
    required=True,
)
ALLREDUCE: Final = Assumption("allreduce", "mpirun completes an allreduce between Termux phones", required=True)

MULTI_PHONE: Final = (NEIGHBOR_LOGIN, ALLREDUCE)  # checked with two or more phones
_ANY_NETWORK: Final = WiredNetwork("", "", "", 0)


def all_assumptions(phones: int) -> tuple[Assumption, ...]:
    """In the order in which they are checked."""
    on_phone = tuple(check.assumption for check in checks(_ANY_NETWORK))
    return (SESSION, PRELOAD, CLOCK, *on_phone, *(MULTI_PHONE if phones > 1 else ()), SCREEN_OFF)
