"""Tunes one phone of each device kind and stores the results."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.inventory.model import Phone
from orchestrator.tune.device_kinds import DeviceKind, by_kind
from orchestrator.tune.store import Tuned, TuneStore
from phone_agent.contract.choices import BACKENDS, MAX_THREADS
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.tune import GRACE_S, TIME_SHARES, TuneRequest

BEST: Final = "best"
Row = Mapping[str, Any]
OnRow = Callable[[Phone, Row], None]


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
    rows: dict[Phone, list[Row]] = {phone: [] for phone in chosen}

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


def _store_best(kind: DeviceKind, request: TuneRequest, rows: list[Row]) -> Tuned:
    best = next((row for row in rows if row["part"] == BEST), None)
    if best is None or "images_per_s" not in best:
        raise PhoneError("no usable config was measured", code=ErrorCode.MEASUREMENT_FAILED)
    tuned = Tuned(
        kind=kind.name,
        core=kind.core,
        driver=kind.driver,
        model=request.model,
        batch=request.batch,
        device_config=_device_config(best.get("device_config")),
        images_per_s=float(best["images_per_s"]),
        rows=tuple(row for row in rows if row is not best),
        measured=time.time(),
    )
    TuneStore().save(tuned)
    return tuned


def _stream_rows(connection: PhoneConnection, request: TuneRequest, rows: list[Row], on_row: OnRow) -> None:
    silence = max(TIME_SHARES.values()) * request.seconds + 2 * GRACE_S
    for value in agent.stream_rows(connection, "tune", json.dumps(asdict(request)), silence=silence):
        row = _check_row(value)
        rows.append(row)
        on_row(connection.phone, row)


def _check_row(row: Any) -> Row:
    numbers = ("step_s", "images_per_s")
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("part"), str)
        or not all(_positive(row[name]) for name in numbers if name in row)
        or not ("error" in row or numbers[0] in row or row["part"] == BEST)
    ):
        raise PhoneError(
            f"invalid tuning row: {str(row)[:100]}", code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision"
        )
    return row


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _device_config(raw: Any) -> DeviceConfig:
    """Accepts only configs that flags could express."""
    try:
        config = DeviceConfig(**raw)
        valid = (
            config.backend in BACKENDS
            and type(config.threads) is int
            and 0 <= config.threads <= MAX_THREADS
            and type(config.little_cores) is bool
            and (
                config.gpu_fraction is None
                or (isinstance(config.gpu_fraction, float) and 0 <= config.gpu_fraction <= 1)
            )
            and all(type(name) is str and type(value) is int and value > 0 for name, value in config.tiles.items())
            and config.fallback_reason == ""
        )
    except (TypeError, AttributeError):
        valid = False
    if not valid:
        raise PhoneError(
            f"invalid device config: {str(raw)[:100]}",
            code=ErrorCode.BAD_ANSWER,
            remedy="clusterctl provision",
        )
    return config
