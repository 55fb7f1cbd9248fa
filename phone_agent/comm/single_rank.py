"""The sum over one rank: a run may go on with a single phone, and with more again later."""

from __future__ import annotations

import time

from phone_agent.comm.executor import Note
from phone_agent.comm.residuals import Residuals, give_back
from phone_agent.comm.traffic import Traffic
from phone_agent.comm.wire import Floats, Wire


class LoneAllreduce:
    """Nothing travels, so nothing is rounded: what the wire once rounded away comes back with the next sum. What is
    remembered is the wire's all the same, so that memory kept by one phone suits several, and theirs suits one."""

    note: Note | None = None

    def __init__(self, wire: Wire) -> None:
        self.traffic = Traffic()
        self.residuals = Residuals(wire)

    def allreduce(self, buffer: Floats) -> None:
        started = time.monotonic()
        if (left := self.residuals.of(buffer)) is not None:
            give_back(left, buffer)
        self.traffic.add(0, time.monotonic() - started)
