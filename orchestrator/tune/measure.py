"""Tunes one phone of each device kind and stores the results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.inventory.model import Phone
from orchestrator.tune.device_kinds import DeviceKind, by_kind
from orchestrator.tune.store import Tuned, TuneStore
from phone_agent.contract.decode import DecodeError, decode_json
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import TuneRow
from phone_agent.contract.tune import GRACE_S, TIME_SHARES, TuneRequest

BEST: Final = "best"
OnRow = Callable[[Phone, TuneRow], None]


@dataclass(frozen=True)
class KindResult:
    kind: DeviceKind
    phones: tuple[Phone, ...]
    measured_on: Phone
    tuned: Tuned | None
    error: str | None = None


def tune(
    fleet: Fleet, kinds: Mapping[Phone, DeviceKind], request: TuneRequest, on_row: OnRow, *, sequential: bool
) -> list[KindResult]:
    """Tunes all kinds in parallel, each on its first phone; virtual phones one by one, since they share a processor."""
    groups = by_kind(kinds)
    chosen = {phones[0]: kind for kind, phones in groups.items()}
    rows: dict[Phone, list[TuneRow]] = {phone: [] for phone in chosen}

    def run_tuning(connection: PhoneConnection) -> None:
        _stream_rows(connection, request, rows[connection.phone], on_row)

    results: list[KindResult] = []
    for batch in [[phone] for phone in chosen] if sequential else [list(chosen)]:
        for outcome in fleet.map(run_tuning, batch):
            kind = chosen[outcome.phone]
            tuned, error = None, outcome.error
            if error is None:
                try:
                    tuned = _store_best(kind, request, rows[outcome.phone])
                except PhoneError as refused:
                    error = refused.message
            results.append(KindResult(kind, tuple(groups[kind]), outcome.phone, tuned, error))
    return results


def _store_best(kind: DeviceKind, request: TuneRequest, rows: list[TuneRow]) -> Tuned:
    best = next((row for row in rows if row.part == BEST), None)
    if best is None or best.images_per_s is None or best.device_config is None:
        raise PhoneError("no usable config was measured", code=ErrorCode.MEASUREMENT_FAILED)
    tuned = Tuned(
        kind=kind.name,
        core=kind.core,
        opencl_kernels=kind.opencl_kernels,
        driver=kind.driver,
        model=request.model,
        batch=request.batch,
        device_config=replace(best.device_config, fallback_reason="", fallback_from=""),
        images_per_s=best.images_per_s,
        rows=tuple(row for row in rows if row is not best),
        measured=time.time(),
    )
    TuneStore().save(tuned)
    return tuned


def _stream_rows(connection: PhoneConnection, request: TuneRequest, rows: list[TuneRow], on_row: OnRow) -> None:
    silence = max(TIME_SHARES.values()) * request.seconds + 2 * GRACE_S
    timeout = request.seconds + (len(TIME_SHARES) + 1) * GRACE_S + silence
    command = ("tune", json.dumps(asdict(request)))
    for row in agent.stream_rows(connection, parse_row, *command, silence=silence, timeout=timeout):
        rows.append(row)
        on_row(connection.phone, row)


def parse_row(line: bytes) -> TuneRow:
    row = decode_json(TuneRow, line)
    if row.step_s is None and row.error is None and row.part != BEST:
        raise DecodeError("neither step_s nor error")
    return row
