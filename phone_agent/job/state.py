"""state.json: the state of a run, written by the parent process of mpirun on the head phone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.files import read_json, write_json
from phone_agent.device.process import ProcessId

STARTING, RUNNING, DONE, FAILED, STOPPED, LOST = "starting", "running", "done", "failed", "stopped", "lost"
YIELDED = "yielded"  # it ended after a step on request, so that another attempt can follow
FINAL = frozenset({DONE, FAILED, STOPPED, LOST, YIELDED})


@dataclass(frozen=True)
class RunState:
    run_id: str
    state: str
    mpirun_parent: ProcessId
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
    """None if the run was never started here. Lost, if the parent process of mpirun died without recording an end."""
    state = _parse(directory)
    if state is None or state.is_final or state.mpirun_parent.alive():
        return state
    state = _parse(directory) or state  # it may have recorded the end and exited since the first read
    return state if state.is_final else replace(state, state=LOST)


def _parse(directory: Path) -> RunState | None:
    raw = read_json(directory / layout.STATE_FILE)
    try:
        mpirun_parent, process = ProcessId(**raw["mpirun_parent"]), raw["process"]
        return RunState(**{**raw, "mpirun_parent": mpirun_parent, "process": ProcessId(**process) if process else None})
    except (KeyError, TypeError):  # not there (yet)
        return None
