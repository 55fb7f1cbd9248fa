"""What we believe of phones and can only ask from outside, or of several at once."""

from __future__ import annotations

from typing import Final

from phone_agent.api.selftest import checks
from phone_agent.contract.assumptions import SCENARIO, Belief, WiredNetwork

IMITATED: Final = "its sshd is this computer's, made to behave like Termux's"

SESSION: Final = Belief(
    "session", "A command over ssh has Termux's PATH, PREFIX, TMPDIR and LD_LIBRARY_PATH (none)", needed=True
)
PRELOAD: Final = Belief(
    "preload", "Over ssh, a script that begins with #!/usr/bin/env starts (LD_PRELOAD)", lab=IMITATED
)
CLOCK: Final = Belief("clock", "The phone's clock is right to two seconds")
SCREEN_OFF: Final = Belief(
    "screen-off", "With the screen off, what sshd starts keeps the big cores and precise naps", lab=SCENARIO
)
NEIGHBOUR: Final = Belief(
    "neighbour", "A phone logs in to the next one over the wire, and Open MPI's daemon starts there", needed=True
)
TOGETHER: Final = Belief("mpirun-together", "mpirun carries a sum between Termux phones", needed=True)

SEVERAL: Final = (NEIGHBOUR, TOGETHER)  # where there are two phones or more
_ANYWHERE: Final = WiredNetwork("", "", "", 0)


def all_beliefs(phones: int) -> tuple[Belief, ...]:
    """In the order in which they are answered."""
    inside = tuple(check.belief for check in checks(_ANYWHERE))
    return (SESSION, PRELOAD, CLOCK, *inside, *(SEVERAL if phones > 1 else ()), SCREEN_OFF)
