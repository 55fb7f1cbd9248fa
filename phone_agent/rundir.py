"""A run's directory on this phone."""

from __future__ import annotations

import re
from pathlib import Path

from phone_agent import layout
from phone_agent.errors import AgentError
from phone_agent.schema import RunSpec, SchemaError

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find(run_id: str) -> Path:
    if not RUN_ID.fullmatch(run_id):
        raise AgentError(f"'{run_id}' is not a run id")
    path = layout.local(layout.run_dir(run_id))
    if not path.is_dir():
        raise AgentError(f"there is no run {run_id} on this phone: {path} does not exist")
    return path


def read_spec(directory: Path) -> RunSpec:
    path = directory / layout.RUN_FILE
    try:
        return RunSpec.from_json(path.read_text(encoding="utf-8"))
    except (OSError, SchemaError) as error:
        raise AgentError(f"{path}: {error}") from None
