"""Results of device studies, and values derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from phone_agent.contract.device_study import (
    Case,
    Facts,
    Interference,
    Load,
    Operation,
    Row,
    Sample,
    StudyRequest,
    document,
)

T = TypeVar("T", bound=Row)
MODEL = "model"


@dataclass(frozen=True)
class DeviceStudy:
    """`error`: why the study did not finish."""

    name: str
    where: str
    virtual: bool
    rows: tuple[Row, ...]
    error: str | None = None
    remedy: str | None = None

    @property
    def facts(self) -> Facts | None:
        return next(iter(self._of(Facts)), None)

    @property
    def models(self) -> list[Case]:
        return [case for case in self._of(Case) if case.family == MODEL]

    @property
    def sweep(self) -> list[Case]:
        return [case for case in self._of(Case) if case.family != MODEL]

    @property
    def operations(self) -> list[Operation]:
        return self._of(Operation)

    @property
    def loads(self) -> list[Load]:
        return self._of(Load)

    @property
    def interference(self) -> list[Interference]:
        return self._of(Interference)

    @property
    def samples(self) -> list[Sample]:
        return self._of(Sample)

    def _of(self, kind: type[T]) -> list[T]:
        return [row for row in self.rows if isinstance(row, kind)]


@dataclass(frozen=True)
class Study:
    request: StudyRequest
    devices: tuple[DeviceStudy, ...]
    made: float  # epoch seconds
    version: str  # of clusterctl

    @property
    def ok(self) -> bool:
        return all(device.error is None for device in self.devices)


def scaled_s(seconds: float | None, case: Case) -> float | None:
    """Step time for the requested batch, extrapolated if a smaller batch was measured."""
    if seconds is None or not case.batch:
        return None
    return seconds * case.batch_requested / case.batch


def is_scaled(case: Case) -> bool:
    return case.batch is not None and case.batch != case.batch_requested


def gflops(case: Case) -> float | None:
    """Training speed, counting the FLOPs of direct convolution."""
    return case.training_flops * case.batch / case.training_s / 1e9 if case.training_s and case.batch else None


def as_document(study: Study, findings: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """`findings`: one list per device."""
    devices = [
        {
            "name": device.name,
            "where": device.where,
            "virtual": device.virtual,
            "error": device.error,
            "rows": [document(row) for row in device.rows],
            "published_comparison": [asdict(finding) for finding in found],
        }
        for device, found in zip(study.devices, findings, strict=True)
    ]
    return {
        "made": study.made,
        "clusterctl": study.version,
        "request": asdict(study.request),
        "devices": devices,
    }
