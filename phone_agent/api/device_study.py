"""Networks of the device study, to count their parameters and FLOPs."""

from __future__ import annotations

from phone_agent.device_study.networks import build, three_pass_flops

__all__ = ["build", "three_pass_flops"]
