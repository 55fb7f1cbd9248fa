"""How a run is shown while it goes on: live on a terminal, line by line elsewhere."""

from __future__ import annotations

import time

from orchestrator.records.run_tail import RunTail
from orchestrator.view.console import err
from orchestrator.view.run_live import LiveRunView
from orchestrator.view.run_plain import PlainRunView
from phone_agent.contract.schema import RunSpec

RunView = LiveRunView | PlainRunView
_POLL_S = 0.2


def open_run_view(spec: RunSpec | None = None) -> RunView:
    """Without a spec, only the phases of a launch are shown."""
    return LiveRunView(spec) if err.is_terminal else PlainRunView()


def watch_run(tail: RunTail, view: RunView) -> RunTail:
    """Show a run that another process supervises, from its files, until it is over."""
    while True:
        for event in tail.poll():
            view.update(tail.progress, event)
        if tail.record.over:
            return tail
        time.sleep(_POLL_S)
