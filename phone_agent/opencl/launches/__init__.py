"""Which launches compute a step: one maker for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phone_agent.core.ops import Kind
from phone_agent.nn.plan.steps import Step
from phone_agent.opencl.emit import Launch, Maker

LaunchMaker = Callable[[Step, Maker], Iterable[Launch]]

MAKERS: dict[Kind, LaunchMaker] = {}


def launches(step: Step, make: Maker) -> list[Launch]:
    make.begin_step()
    return list(MAKERS[step.kind](step, make))
