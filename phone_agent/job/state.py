"""state.json: how a run is doing, as its supervisor on the head phone sees it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.files import read_json, write_json
from phone_agent.device.process import ProcessId

STARTING, RUNNING, DONE, FAILED, STOPPED, LOST = "starting", "running", "done", "failed", "stopped", "lost"
YIELDED = "yielded"  # it ended at a step's end because it was asked to: another attempt follows
FINAL = frozenset({DONE, FAILED, STOPPED, LOST, YIELDED})


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
    state = _parse(directory)
    if state is None or state.is_final or state.supervisor.alive():
        return state
    state = _parse(directory) or state  # it may have written the end and left while we looked
    return state if state.is_final else replace(state, state=LOST)


def _parse(directory: Path) -> RunState | None:
    raw = read_json(directory / layout.STATE_FILE)
    try:
        supervisor, process = ProcessId(**raw["supervisor"]), raw["process"]
        return RunState(**{**raw, "supervisor": supervisor, "process": ProcessId(**process) if process else None})
    except (KeyError, TypeError):  # not there (yet)
        return None
