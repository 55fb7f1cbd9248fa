"""Makes what aarch64 labs need and this computer does not have yet: python -m orchestrator.lab.arch."""

from __future__ import annotations

from orchestrator.lab.arch.userland import ensure
from orchestrator.view.console import note

if __name__ == "__main__":
    note(f"the arm64 userland is {ensure(note)}")
