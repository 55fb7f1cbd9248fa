"""Streams the events of a run from a byte offset on, so that a client can reconnect without losing any."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.job import lease, run_directory
from phone_agent.job import state as run_state

POLL_S = 0.2
HEARTBEAT_S = 0.5


def follow(
    run_id: str, offset: int, attempt: int = 0, *, holder: str | None = None, heartbeat_s: float = HEARTBEAT_S
) -> Iterator[str]:
    """Lines of events.jsonl; heartbeats in between, by which the client detects a dead link; then an end event.

    While following, `holder` holds the lease of the run, unless another one does: heartbeats then name that one.
    """
    directory = run_directory.find(run_id, attempt)
    beat_at = renew_at = time.monotonic()
    other_lease: lease.Lease | None = None
    while True:
        state = run_state.read(directory)  # before the events: once the state is final, all events are written
        if state is None:
            raise AgentError(f"run {run_id} was not started on this phone", code=ErrorCode.NOT_STARTED)
        for line in _complete_lines(directory / layout.EVENTS_FILE, offset):
            offset += len(line)
            yield line.decode(errors="replace").rstrip("\n")
        if state.is_final:
            yield _line("end", state=state.state, rc=state.rc, offset=offset)
            return
        if holder is not None and time.monotonic() >= renew_at:
            other_lease = lease.take(run_directory.run_of(directory), holder)
            renew_at = time.monotonic() + lease.RENEW_S
        if time.monotonic() >= beat_at:
            yield _line(
                "heartbeat", state=state.state, offset=offset, lease_holder=other_lease.holder if other_lease else None
            )
            beat_at = time.monotonic() + heartbeat_s
        time.sleep(POLL_S)


def _complete_lines(path: Path, offset: int) -> list[bytes]:
    """Lines from `offset` on, without a last one that is still being written."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            lines = file.readlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith(b"\n")]


def _line(name: str, **fields: Any) -> str:
    return json.dumps({"event": name, "time": time.time(), **fields})
