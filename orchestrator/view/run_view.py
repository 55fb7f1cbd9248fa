"""How a run is shown while it goes on: live on a terminal, line by line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.records.run_tail import RunTail
from orchestrator.view.console import err
from orchestrator.view.run_live import LiveRunView
from orchestrator.view.run_plain import PlainRunView
from phone_agent.contract.schema import RunSpec

RunView = LiveRunView | PlainRunView
_POLL_S = 0.2
_SUPERVISOR_CHECK_S = 3.0


def open_run_view(spec: RunSpec | None = None) -> RunView:
    """Without a spec, only the phases of a launch are shown."""
    return LiveRunView(spec) if err.is_terminal else PlainRunView()


def watch_run(tail: RunTail, view: RunView, ensure_supervisor: Callable[[], object]) -> None:
    """Show a run from its files until it is over. Starts its supervisor again should that have died."""
    checked_at = time.monotonic()
    while True:
        for event in tail.poll():
            view.update(tail.progress, event)
        view.refresh(tail.spec, tail.progress, tail.activity, tail.status(time.time()))
        if tail.record.over:
            return
        if time.monotonic() - checked_at > _SUPERVISOR_CHECK_S:
            ensure_supervisor()
            checked_at = time.monotonic()
        time.sleep(_POLL_S)
