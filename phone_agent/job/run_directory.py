"""The directories of a run and of its attempts on this phone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from phone_agent.contract import layout
from phone_agent.contract.errors import AgentError, BadlyStagedError, BadRequestError, ErrorCode
from phone_agent.contract.schema import RunSpec, SchemaError

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ATTEMPT = re.compile(r"attempt-([1-9]\d{0,5})")


def find(run_id: str, attempt: int = 0) -> Path:
    """The directory of an attempt. The first attempt uses the run's own."""
    if not RUN_ID.fullmatch(run_id):
        raise BadRequestError(f"'{run_id}' is not a valid run id")
    path = layout.local(layout.attempt_dir(run_id, attempt))
    if not path.is_dir():
        what = f"attempt {attempt} of run {run_id}" if attempt else f"run {run_id}"
        raise AgentError(f"no {what} on this phone: {path} does not exist", code=ErrorCode.NO_SUCH_RUN)
    return path


def attempts(run: Path) -> list[Path]:
    """Attempts that were staged here, oldest first."""
    numbered = [(int(match[1]), path) for path in run.glob(layout.ATTEMPTS) if (match := ATTEMPT.fullmatch(path.name))]
    candidates = [run, *(path for _, path in sorted(numbered))]
    return [path for path in candidates if (path / layout.RUN_FILE).is_file()]


def newest(run: Path) -> Path:
    """The directory of the newest attempt; the run's own if none was staged."""
    return (attempts(run) or [run])[-1]


def run_of(attempt: Path) -> Path:
    """The run's directory, with the files shared by all attempts: checkpoints, weights, model file."""
    return attempt.parent if ATTEMPT.fullmatch(attempt.name) else attempt


def number(attempt: Path) -> int:
    match = ATTEMPT.fullmatch(attempt.name)
    return int(match[1]) if match else 0


def read_spec(directory: Path) -> RunSpec:
    path = directory / layout.RUN_FILE
    try:
        return RunSpec.from_json(path.read_text(encoding="utf-8"))
    except (OSError, SchemaError) as error:
        raise BadlyStagedError(f"{path}: {error}") from None


def own_phone(spec: RunSpec, environment: Mapping[str, str]) -> str:
    """The phone of this process, from mpirun's environment. Verified again once MPI has started."""
    rank = int(environment.get(layout.MPI_RANK, "0"))
    return spec.ranks[rank].phone if rank < len(spec.ranks) else ""
