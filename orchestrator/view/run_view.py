"""How a run is shown while it goes on: live on a terminal, line by line elsewhere."""

from __future__ import annotations

from orchestrator.view.console import err
from orchestrator.view.run_live import LiveRunView
from orchestrator.view.run_plain import PlainRunView
from phone_agent.contract.schema import RunSpec

RunView = LiveRunView | PlainRunView


def open_run_view(spec: RunSpec | None = None) -> RunView:
    """Without a spec, only the phases of a launch are shown."""
    return LiveRunView(spec) if err.is_terminal else PlainRunView()
