"""Runs device studies: on phones over ssh, on this computer in a subprocess."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from orchestrator.device_study.result import DeviceStudy
from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.inventory.model import Cluster, Phone
from phone_agent.contract.device_study import Row, StudyError, StudyRequest, read_row
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

HERE: Final = "this computer"
SILENCE_S: Final = 600.0  # maximum time per row, with margin
MAX_ROWS: Final = 20_000

OnRow = Callable[[str, Row], None]  # device name and row; from any thread


def study_here(request: StudyRequest, on_row: OnRow) -> DeviceStudy:
    rows: list[Row] = []
    with TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", "phone_agent", "device-study", json.dumps(asdict(request))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints,
        )  # fmt: skip
        with process:
            try:
                _take(HERE, process.stdout or (), rows, on_row)
            except BaseException:
                process.kill()
                raise
        complaints.seek(0)
        said = complaints.read().strip()
    error = (
        f"the study ended with {process.returncode}: {agent.reported(said, process.returncode)[1]}"
        if process.returncode
        else None
    )
    return DeviceStudy(HERE, platform.node(), virtual=False, rows=tuple(rows), error=error)


def study_phones(cluster: Cluster, fleet: Fleet, request: StudyRequest, on_row: OnRow) -> Iterator[DeviceStudy]:
    """All in parallel; virtual phones one by one, since they share a processor."""
    virtual = cluster.lab is not None
    groups = [[phone] for phone in fleet.phones] if virtual else [list(fleet.phones)]
    for phones in groups:
        yield from _study_group(fleet, phones, request, on_row, virtual=virtual)


def _study_group(
    fleet: Fleet, phones: list[Phone], request: StudyRequest, on_row: OnRow, *, virtual: bool
) -> Iterator[DeviceStudy]:
    rows: dict[Phone, list[Row]] = {phone: [] for phone in phones}
    outcomes = fleet.map(lambda connection: _ask(connection, request, rows[connection.phone], on_row), phones)
    for outcome in outcomes:
        phone = outcome.phone
        yield DeviceStudy(
            phone.name, phone.where, virtual, tuple(rows[phone]), error=outcome.error, remedy=outcome.remedy
        )


def _ask(connection: PhoneConnection, request: StudyRequest, rows: list[Row], on_row: OnRow) -> None:
    name = connection.phone.name
    argv = agent.argv("device-study", json.dumps(asdict(request)))
    with connection.open_stream(argv, env=agent.ENVIRONMENT, silence=SILENCE_S) as stream:
        try:
            _take(name, stream, rows, on_row)
        except StudyError as error:
            raise PhoneError(
                f"invalid result row: {error}", code=ErrorCode.BAD_ANSWER, remedy=_provision(name)
            ) from None
    if stream.rc:
        code, said = agent.reported(stream.stderr, stream.rc)
        raise PhoneError(f"the study ended with {stream.rc}: {said}", code=code, remedy=_provision(name))


def _take(name: str, lines: Iterable[bytes], rows: list[Row], on_row: OnRow) -> None:
    for line in lines:
        row = _row(line)
        if row is None:
            continue
        if len(rows) >= MAX_ROWS:
            raise StudyError(f"more than {MAX_ROWS} rows")
        rows.append(row)
        on_row(name, row)


def _row(line: bytes) -> Row | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return read_row(said)


def _provision(name: str) -> str:
    return f"clusterctl provision --limit {name}"
