"""What a study is asked for and what it answers: one JSON object a line. Both sides read these shapes.

Times are seconds, sizes bytes, rates per second. None: not to be had, or not measured; `why` then says why.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.contract.errors import AgentError, ErrorCode

PARTS = ("models", "sweep", "operations", "power", "foreground")
MODELS = ("mentee", "mobilenet_reduced", "resnet_reduced")
BACKENDS = ("cpu", "opencl")
FAMILIES = ("fc", "conv", "separable")  # networks of one kind of layer
WIDTHS, DEPTHS = (64, 128, 256, 512), (1, 2, 4, 8)
PROFILED = ("conv", 64, 4)  # the network that the paper profiles by operation; it does not say how wide
FOREGROUND_ALONE, TRAINING_ALONE = "foreground alone", "training alone"  # situations of a Contest
TRAINING_GIVES_WAY, EQUAL_PRIORITY = "both, training gives way", "both, equal priority"
WIDEST, DEEPEST, LARGEST_BATCH, LONGEST_MINUTES = 4096, 64, 1024, 240.0


class StudyError(AgentError):
    """Asked for what cannot be studied, or answered with what makes no sense."""

    code = ErrorCode.BAD_REQUEST


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
    threads: int = 0  # 0: one for each big core
    memory_bytes: int | None = None  # None: what is free when the study starts
    quick: bool = False
    thermal_minutes: float = 0.0  # 0: no thermal run

    def check(self) -> None:
        _known("part", self.parts, PARTS)
        _known("model", self.models, MODELS)
        _known("family of networks", self.families, FAMILIES)
        _within("width", self.widths, WIDEST)
        _within("depth", self.depths, DEEPEST)
        _within("batch", (self.batch,), LARGEST_BATCH)
        _known("backend", self.backends, BACKENDS)
        if not 0 <= self.threads <= MAX_THREADS:
            raise StudyError(f"{self.threads} threads: 1 to {MAX_THREADS} can work together")
        if not 0 <= self.thermal_minutes <= LONGEST_MINUTES:
            raise StudyError(f"a thermal run of {self.thermal_minutes:g} minutes; at most {LONGEST_MINUTES:g}")
        if not self.parts and not self.thermal_minutes:
            raise StudyError(f"nothing to study; there is: {', '.join(PARTS)}")


@dataclass(frozen=True)
class Facts:
    """The device, as it was when the study began."""

    model: str | None
    processor: str | None
    system: str
    architecture: str
    cores: int
    threads: int  # that compute
    kernels: str | None  # instruction set of the compute core
    frequency_max_mhz: int | None
    memory_bytes: int | None
    budget_bytes: int | None  # what a training step may take
    opencl: str | None  # the device; None: there is none
    why_no_opencl: str = ""


@dataclass(frozen=True)
class Case:
    """A network on a backend. Times are medians of steps of `batch` images: those asked for, or as time allowed."""

    family: str  # model, or a family of networks
    name: str
    width: int  # 0: a model
    depth: int
    backend: str
    parameters: int
    forward_flops: int  # an image's
    training_flops: int
    batch_asked: int
    planned_bytes: int  # for a training step of `batch_asked` images: modelled, before anything ran
    batch: int | None = None
    training_s: float | None = None
    inference_s: float | None = None
    runs: int = 0  # steps that were timed
    resident_bytes: int | None = None  # at its highest, while training with `batch` images
    why: str = ""  # it was not measured
    code: str = ""  # the error code of that


@dataclass(frozen=True)
class Operation:
    """What one kind of work takes of a step: the best of some runs."""

    network: str
    backend: str
    batch: int
    kind: str
    direction: str
    seconds: float
    flops: int
    why: str = ""


@dataclass(frozen=True)
class Load:
    """What the device does, and takes from its battery, while it rests or works for some seconds."""

    activity: str  # rest, inference or training
    network: str
    backend: str
    seconds: float
    cpu_share: float | None  # of one core: 2.0 is two cores' time
    resident_bytes: int | None
    power_w: float | None = None  # current x voltage of the battery, averaged
    current_a: float | None = None  # as the battery tells it: its sign differs between phones
    voltage_v: float | None = None
    plugged: str | None = None
    temperature_c: float | None = None
    frequency_mhz: float | None = None
    why: str = ""
    code: str = ""


@dataclass(frozen=True)
class Contest:
    """Training and a foreground load, alone and side by side."""

    situation: str
    network: str
    foreground_rate: float | None  # rounds a second, of all its processes
    training_s: float | None  # a step's median
    why: str = ""


@dataclass(frozen=True)
class Sample:
    """A moment of the thermal run."""

    network: str
    backend: str
    batch: int
    at_s: float
    training_s: float  # median of the steps since the last sample
    temperature_c: float | None
    thermometer: str | None
    frequency_mhz: float | None
    power_w: float | None = None


Row: TypeAlias = Facts | Case | Operation | Load | Contest | Sample
ROWS: dict[str, type[Row]] = {
    "facts": Facts,
    "case": Case,
    "operation": Operation,
    "load": Load,
    "contest": Contest,
    "sample": Sample,
}
_NAMES = {kind: name for name, kind in ROWS.items()}


def document(row: Row) -> dict[str, Any]:
    return {"row": _NAMES[type(row)], **asdict(row)}


def read_row(said: Any) -> Row | None:
    """From a line of a phone; None where it is of a kind not known here. Raises StudyError for what makes no sense."""
    if not isinstance(said, dict) or said.get("row") not in ROWS:
        return None
    row: Row = _read(ROWS[said["row"]], {name: value for name, value in said.items() if name != "row"})
    return row


def read_study_request(text: str) -> StudyRequest:
    try:
        said = json.loads(text)
    except ValueError:
        raise StudyError("the request is not JSON") from None
    request: StudyRequest = _read(StudyRequest, said)
    request.check()
    return request


def _read(kind: type[Any], said: Any) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(said, dict) or not said.keys() <= {field.name for field in fields(kind)}:
        raise StudyError(f"{kind.__name__.lower()}: unknown fields")
    try:
        return kind(**{name: _value(name, value, hints[name]) for name, value in said.items()})
    except TypeError:
        raise StudyError(f"{kind.__name__.lower()}: fields are missing") from None


def _value(name: str, value: Any, hint: Any) -> Any:
    """As the field's type says: numbers finite, an int where a float is wanted, a list as a tuple."""
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    for option in options:
        if option is NoneType and value is None:
            return None
        if option is float and type(value) in {int, float} and math.isfinite(value):
            return float(value)
        if option in {int, str, bool} and type(value) is option:
            return value
        if get_origin(option) is tuple and isinstance(value, list):
            return tuple(_value(name, each, get_args(option)[0]) for each in value)
    raise StudyError(f"{name}: {value!r:.60} makes no sense")


def _known(what: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for each in given:
        if each not in known:
            raise StudyError(f"there is no {what} called '{each}'; there is: {', '.join(known)}")


def _within(what: str, given: tuple[int, ...], most: int) -> None:
    for each in given:
        if not 1 <= each <= most:
            raise StudyError(f"a {what} of {each}: 1 to {most}")
