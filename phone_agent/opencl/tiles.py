"""The numbers that kernels can be tuned by."""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.opencl.device import Limits


@dataclass(frozen=True)
class Tiles:
    """How work is cut."""


def default(_limits: Limits) -> Tiles:
    return Tiles()
