"""Request and result rows of a device study, one JSON object per line. Used by both sides.

Times are in seconds, sizes in bytes, rates per second. None: unavailable or not measured; `why` has the reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeAlias

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.contract.decode import (
    Bytes,
    Celsius,
    Count,
    DecodeError,
    Range,
    Reading,
    Seconds,
    check_no_unknown_fields,
    decode,
    parse_json,
)
from phone_agent.contract.errors import BadRequestError

PARTS = ("models", "sweep", "operations", "power", "foreground")
MODELS = ("mentee", "mobilenet_reduced", "resnet_reduced")
BACKENDS = ("cpu", "opencl")
FAMILIES = ("fc", "conv", "separable")  # networks of one kind of layer
WIDTHS, DEPTHS = (64, 128, 256, 512), (1, 2, 4, 8)
PROFILED = ("conv", 64, 4)  # the network that the paper profiles by operation; the paper does not state its width
FOREGROUND_ALONE, TRAINING_ALONE = "foreground alone", "training alone"  # situations of Interference
TRAINING_LOW_PRIORITY, EQUAL_PRIORITY = "both, training at low priority", "both, equal priority"
MAX_WIDTH, MAX_DEPTH, MAX_BATCH, MAX_MINUTES = 4096, 64, 1024, 240.0


def network_name(family: str, width: int, depth: int) -> str:
    return f"{family} {width} x {depth}"


@dataclass(frozen=True)
class StudyRequest:
    parts: tuple[str, ...] = PARTS
    models: tuple[str, ...] = MODELS
    families: tuple[str, ...] = FAMILIES
    widths: tuple[int, ...] = WIDTHS
    depths: tuple[int, ...] = DEPTHS
    backends: tuple[str, ...] = BACKENDS
    batch: int = 128
    threads: int = 0  # 0: one per big core
    memory_bytes: int | None = None  # None: the free memory at the start
    quick: bool = False
    thermal_minutes: float = 0.0  # 0: no thermal run

    def check(self) -> None:
        _check_choices("part", self.parts, PARTS)
        _check_choices("model", self.models, MODELS)
        _check_choices("network family", self.families, FAMILIES)
        _check_range("width", self.widths, MAX_WIDTH)
        _check_range("depth", self.depths, MAX_DEPTH)
        _check_range("batch", (self.batch,), MAX_BATCH)
        _check_choices("backend", self.backends, BACKENDS)
        if not 0 <= self.threads <= MAX_THREADS:
            raise BadRequestError(f"{self.threads} threads: must be 1 to {MAX_THREADS}")
        if not 0 <= self.thermal_minutes <= MAX_MINUTES:
            raise BadRequestError(f"thermal run of {self.thermal_minutes:g} minutes: must be at most {MAX_MINUTES:g}")
        if not self.parts and not self.thermal_minutes:
            raise BadRequestError(f"nothing to study; choose from: {', '.join(PARTS)}")


Flops = Annotated[int, Range(0, 1 << 60)]


@dataclass(frozen=True)
class Facts:
    """Facts about the device at the start of the study."""

    model: str | None
    processor: str | None
    system: str
    architecture: str
    cores: Count
    threads: Count  # compute threads
    kernels: str | None  # instruction set of the compute core
    frequency_max_mhz: Count | None
    memory_bytes: Bytes | None
    budget_bytes: Bytes | None  # for a training step
    opencl: str | None  # device name; None if there is none
    why_no_opencl: str = ""


@dataclass(frozen=True)
class Case:
    """A network on a backend. Times are medians over steps of `batch` images: as requested, or as time allowed."""

    family: str  # model, or a family of networks
    name: str
    width: Count  # 0: a model
    depth: Count
    backend: str
    parameters: Count
    forward_flops: Flops  # per image
    training_flops: Flops
    batch_requested: Count
    planned_bytes: Bytes  # estimate for a training step of `batch_requested` images
    batch: Count | None = None
    training_s: Seconds | None = None
    inference_s: Seconds | None = None
    runs: Count = 0  # timed steps
    resident_bytes: Bytes | None = None  # peak while training with `batch` images
    why: str = ""  # reason if not measured
    code: str = ""  # error code if not measured


@dataclass(frozen=True)
class Operation:
    """Time of one kind of operation within a step: the best of several runs."""

    network: str
    backend: str
    batch: Count
    kind: str
    direction: str
    seconds: Seconds
    flops: Flops
    why: str = ""


@dataclass(frozen=True)
class Load:
    """CPU, memory and power of the device while it is idle or busy for some seconds."""

    activity: str  # rest, inference or training
    network: str
    backend: str
    seconds: Seconds
    cpu_share: Reading  # in cores: 2.0 means two cores fully used
    resident_bytes: Bytes | None
    power_w: Reading = None  # current x voltage of the battery, averaged
    current_a: Reading = None  # the sign differs between phones
    voltage_v: Reading = None
    plugged: str | None = None
    temperature_c: Celsius = None
    frequency_mhz: Reading = None
    why: str = ""
    code: str = ""
    power_basis: str = ""  # how the unit of the current was decided


@dataclass(frozen=True)
class Interference:
    """Training and a foreground load, alone and at the same time."""

    situation: str
    network: str
    foreground_rate: Reading  # rounds per second, over all processes
    training_s: Seconds | None  # median step time
    why: str = ""


@dataclass(frozen=True)
class Sample:
    """A sample of the thermal run."""

    network: str
    backend: str
    batch: Count
    at_s: Seconds
    training_s: Seconds  # median step time since the last sample
    temperature_c: Celsius
    thermometer: str | None
    frequency_mhz: Reading
    power_w: Reading = None


Row: TypeAlias = Facts | Case | Operation | Load | Interference | Sample
ROWS: dict[str, type[Row]] = {
    "facts": Facts,
    "case": Case,
    "operation": Operation,
    "load": Load,
    "interference": Interference,
    "sample": Sample,
}
_NAMES = {kind: name for name, kind in ROWS.items()}


def document(row: Row) -> dict[str, Any]:
    return {"row": _NAMES[type(row)], **asdict(row)}


def parse_row(line: bytes | str) -> Row:
    """Raises DecodeError if it is invalid."""
    raw = parse_json(line)
    kind = ROWS.get(str(raw.get("row"))) if isinstance(raw, dict) else None
    if kind is None:
        raise DecodeError("not a row of a device study")
    row: Row = decode(kind, raw)
    return row


def read_study_request(text: str) -> StudyRequest:
    try:
        raw = parse_json(text)
        check_no_unknown_fields(StudyRequest, raw)
        request = decode(StudyRequest, raw)
    except DecodeError as error:
        raise BadRequestError(f"invalid request: {error}") from None
    request.check()
    return request


def _check_choices(what: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    for each in values:
        if each not in known:
            raise BadRequestError(f"unknown {what} '{each}'; choose from: {', '.join(known)}")


def _check_range(what: str, values: tuple[int, ...], maximum: int) -> None:
    for each in values:
        if not 1 <= each <= maximum:
            raise BadRequestError(f"{what} {each}: must be 1 to {maximum}")
