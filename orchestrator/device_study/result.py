"""What devices answered, as values; and what can be read off them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from phone_agent.contract.device_study import Case, Contest, Facts, Load, Operation, Row, Sample, StudyRequest, document

T = TypeVar("T", bound=Row)
MODEL = "model"


@dataclass(frozen=True)
class DeviceStudy:
    """`error`: why the device did not answer to the end."""

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
    def contests(self) -> list[Contest]:
        return self._of(Contest)

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
    version: str  # clusterctl's

    @property
    def ok(self) -> bool:
        return all(device.error is None for device in self.devices)


def scaled_s(seconds: float | None, case: Case) -> float | None:
    """For the batch that was asked for; measured with fewer images, it is so many times longer: modelled."""
    if seconds is None or not case.batch:
        return None
    return seconds * case.batch_asked / case.batch


def is_scaled(case: Case) -> bool:
    return case.batch is not None and case.batch != case.batch_asked


def gflops(case: Case) -> float | None:
    """Of training, by the direct method."""
    return case.training_flops * case.batch / case.training_s / 1e9 if case.training_s and case.batch else None


def as_document(study: Study, findings: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """`findings`: of each device."""
    devices = [
        {
            "name": device.name,
            "where": device.where,
            "virtual": device.virtual,
            "error": device.error,
            "rows": [document(row) for row in device.rows],
            "beside_published": [asdict(finding) for finding in found],
        }
        for device, found in zip(study.devices, findings, strict=True)
    ]
    return {
        "made": study.made,
        "clusterctl": study.version,
        "request": asdict(study.request),
        "devices": devices,
    }
