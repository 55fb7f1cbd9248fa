"""state.json: how a run is doing, as its supervisor on the head phone sees it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from phone_agent import layout
from phone_agent.files import read_json, write_json
from phone_agent.process import ProcessId

STARTING, RUNNING, DONE, FAILED, STOPPED, LOST = "starting", "running", "done", "failed", "stopped", "lost"
FINAL = frozenset({DONE, FAILED, STOPPED, LOST})


@dataclass(frozen=True)
class RunState:
    run_id: str
    state: str
    supervisor: ProcessId
    started: float
    process: ProcessId | None = None  # mpirun, which leads its own session
    ended: float | None = None
    rc: int | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    def write(self, directory: Path) -> None:
        write_json(directory / layout.STATE_FILE, asdict(self))


def read(directory: Path) -> RunState | None:
    """None when the run was never started here. A supervisor that died without a word makes the run lost."""
    raw = read_json(directory / layout.STATE_FILE)
    if not isinstance(raw, dict):
        return None
    state = _parse(raw)
    if not state.is_final and not state.supervisor.alive():
        return _reread_or_lost(directory, state)
    return state


def _reread_or_lost(directory: Path, before: RunState) -> RunState:
    """It may have written the end and left between our reading and our looking."""
    raw = read_json(directory / layout.STATE_FILE)
    now = _parse(raw) if isinstance(raw, dict) else before
    return now if now.is_final else replace(now, state=LOST)


def _parse(raw: dict[str, Any]) -> RunState:
    process = raw["process"]
    return RunState(
        **{
            **raw,
            "supervisor": ProcessId(**raw["supervisor"]),
            "process": ProcessId(**process) if process else None,
        }
    )
