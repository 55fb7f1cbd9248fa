"""Runs device studies: on phones over ssh, on this computer in a subprocess."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Final

from orchestrator.device_study.result import DeviceStudy
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.inventory.model import Cluster, Phone
from phone_agent.contract.device_study import Row, StudyRequest, parse_row

HERE: Final = "this computer"
SILENCE_S: Final = 600.0  # maximum time per row, with margin
MAX_STUDY_S: Final = 12 * 3600.0  # without the thermal run

OnRow = Callable[[str, Row], None]  # device name and row; from any thread


def study_here(request: StudyRequest, on_row: OnRow) -> DeviceStudy:
    rows: list[Row] = []
    with TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "phone_agent", "device-study", json.dumps(asdict(request))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        with process:
            try:
                _add_rows(HERE, map(parse_row, process.stdout or ()), rows, on_row)
            except BaseException:
                process.kill()
                raise
        stderr.seek(0)
        output = stderr.read().strip()
    error = (
        f"the study failed with exit code {process.returncode}: {agent.reported(output, process.returncode)[1]}"
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
    outcomes = fleet.map(lambda connection: _study_phone(connection, request, rows[connection.phone], on_row), phones)
    for outcome in outcomes:
        phone = outcome.phone
        yield DeviceStudy(
            phone.name, phone.where, virtual, tuple(rows[phone]), error=outcome.error, remedy=outcome.remedy
        )


def _study_phone(connection: PhoneConnection, request: StudyRequest, rows: list[Row], on_row: OnRow) -> None:
    name = connection.phone.name
    command, timeout = ("device-study", json.dumps(asdict(request))), MAX_STUDY_S + 60 * request.thermal_minutes
    arriving = agent.stream_rows(connection, parse_row, *command, silence=SILENCE_S, timeout=timeout)
    _add_rows(name, arriving, rows, on_row)


def _add_rows(name: str, arriving: Iterable[Row], rows: list[Row], on_row: OnRow) -> None:
    for row in arriving:
        rows.append(row)
        on_row(name, row)
