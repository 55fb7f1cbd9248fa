"""Has one phone of each kind search for its fastest way, and keeps what it found."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import PhoneError
from orchestrator.fleet import agent
from orchestrator.inventory.model import Phone
from orchestrator.tune.device_kinds import Kind, by_kind
from orchestrator.tune.store import Tuned, TuneStore
from phone_agent.contract.choices import BACKENDS, MAX_THREADS
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.tune import GRACE_S, TIME_SHARES, TuneRequest

if TYPE_CHECKING:
    from orchestrator.fleet import Fleet, PhoneConnection

MOST_ROWS: Final = 1000
BEST: Final = "best"
Row = Mapping[str, Any]
OnRow = Callable[[Phone, Row], None]


@dataclass(frozen=True)
class KindTuned:
    kind: Kind
    phones: tuple[Phone, ...]
    measured_on: Phone
    tuned: Tuned | None
    error: str | None = None


def tune(
    fleet: Fleet, kinds: Mapping[Phone, Kind], request: TuneRequest, on_row: OnRow, *, one_by_one: bool
) -> list[KindTuned]:
    """Kinds at once, each on its first phone; virtual phones one by one, since they share a processor."""
    groups = by_kind(kinds)
    chosen = {phones[0]: kind for kind, phones in groups.items()}
    rows: dict[Phone, list[Row]] = {phone: [] for phone in chosen}

    def ask(connection: PhoneConnection) -> None:
        _ask(connection, request, rows[connection.phone], on_row)

    found: list[KindTuned] = []
    for together in [[phone] for phone in chosen] if one_by_one else [list(chosen)]:
        for outcome in fleet.map(ask, together):
            kind = chosen[outcome.phone]
            tuned, error = None, outcome.error
            if error is None:
                try:
                    tuned = _kept(kind, request, rows[outcome.phone])
                except PhoneError as refused:
                    error = refused.message
            found.append(KindTuned(kind, tuple(groups[kind]), outcome.phone, tuned, error))
    return found


def _kept(kind: Kind, request: TuneRequest, rows: list[Row]) -> Tuned:
    best = next((row for row in rows if row["part"] == BEST), None)
    if best is None or "images_per_s" not in best:
        raise PhoneError("it found no way to compute", code=ErrorCode.MEASUREMENT_FAILED)
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
    TuneStore().keep(tuned)
    return tuned


def _ask(connection: PhoneConnection, request: TuneRequest, rows: list[Row], on_row: OnRow) -> None:
    argv = agent.argv("tune", json.dumps(asdict(request)))
    silence = max(TIME_SHARES.values()) * request.seconds + 2 * GRACE_S
    with connection.open_stream(argv, env=agent.ENVIRONMENT, silence=silence) as stream:
        for line in stream:
            row = _row(line)
            if len(rows) >= MOST_ROWS:
                raise PhoneError(
                    f"more than {MOST_ROWS} measurements", code=ErrorCode.TOO_MUCH_OUTPUT, remedy="clusterctl provision"
                )
            rows.append(row)
            on_row(connection.phone, row)
    if stream.rc:
        code, said = agent.reported(stream.stderr, stream.rc)
        raise PhoneError(f"tuning ended with {stream.rc}: {said[:200]}", code=code, remedy="clusterctl provision")


def _row(line: str | bytes) -> Row:
    """What a phone says may be anything."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    figures = ("step_s", "images_per_s")
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("part"), str)
        or not all(_positive(row[name]) for name in figures if name in row)
        or not ("error" in row or figures[0] in row or row["part"] == BEST)
    ):
        raise PhoneError(
            f"its answer makes no sense: {str(line)[:100]}", code=ErrorCode.BAD_ANSWER, remedy="clusterctl provision"
        )
    return row


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _device_config(raw: Any) -> DeviceConfig:
    """Only what a person could have asked for."""
    try:
        way = DeviceConfig(**raw)
        sound = (
            way.backend in BACKENDS
            and type(way.threads) is int
            and 0 <= way.threads <= MAX_THREADS
            and type(way.little_cores) is bool
            and (way.gpu_fraction is None or (isinstance(way.gpu_fraction, float) and 0 <= way.gpu_fraction <= 1))
            and all(type(name) is str and type(value) is int and value > 0 for name, value in way.tiles.items())
            and way.fallback_reason == ""
        )
    except (TypeError, AttributeError):
        sound = False
    if not sound:
        raise PhoneError(
            f"the way it chose makes no sense: {str(raw)[:100]}",
            code=ErrorCode.BAD_ANSWER,
            remedy="clusterctl provision",
        )
    return way
