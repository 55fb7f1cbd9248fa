"""Replies of agent commands, one JSON document each, with the range of every field. The host decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from phone_agent.contract.assumptions import Status
from phone_agent.contract.dataset_manifest import DatasetManifest
from phone_agent.contract.decode import (
    Bytes,
    Celsius,
    Clamp,
    Count,
    Key,
    Matches,
    Name,
    OneOf,
    Or,
    Range,
    Reading,
    Seconds,
    Size,
    Step,
)
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.startup import StartupPhase

OPENCL_DEVICE_TYPES = ("gpu", "accelerator", "cpu")
SHA256 = r"[0-9a-f]{64}"
Megabytes = Annotated[float | None, Range(0, 1e9), Or(None)]
Label = Annotated[str, Size(120)]


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """A checkpoint file on a phone."""

    name: Annotated[str, Key("file"), Matches(r"checkpoint-[0-9]{8,10}\.safetensors")]
    size: Annotated[int, Key("bytes"), Range(1, 1 << 36)]
    sha256: Annotated[str, Matches(SHA256)]

    @property
    def step(self) -> int:
        return int(self.name.removeprefix("checkpoint-").removesuffix(".safetensors"))


@dataclass(frozen=True)
class Checkpoints:
    """`checkpoints`: the newest intact one, and the names of newer ones that are damaged."""

    newest: CheckpointInfo | None
    damaged: tuple[Name, ...]


@dataclass(frozen=True)
class RankProcess:
    state: Annotated[str, Size(1)]  # as in /proc/PID/stat
    progressing: bool
    cpu_s: Seconds = 0.0


@dataclass(frozen=True)
class RunProbe:
    """`probe` and `cleanup`: the state of a run on one phone."""

    held_steps: tuple[tuple[Step, Count], ...]  # states in memory, each as step and attempt: CommittedStep
    checkpoint_step: Annotated[Step, Or(0)] = 0  # of the newest checkpoint file, which may be damaged; 0: there is none
    ranks: tuple[RankProcess, ...] = ()
    phase: StartupPhase | None = None  # of the newest attempt's rank; None: it has not started
    phase_expected_s: Annotated[float, Clamp(0, 600)] = 0.0  # bounded: it extends how long a silent rank is tolerated
    disk_mb: Megabytes = None
    memory_mb: Megabytes = None
    killed_by: Annotated[Name | None, Or(None)] = None


@dataclass(frozen=True)
class RunSummary:
    """`runs`: one of the runs on a phone."""

    id: Name
    state: Name
    attempt: Count = 0
    step: Annotated[Step | None, Or(None)] = None


@dataclass(frozen=True)
class Started:
    """`start`."""

    pid: int


@dataclass(frozen=True)
class DaemonRequests:
    """`daemons`: what mpirun decides about its daemons."""

    uri: Annotated[
        str, Matches(r"[0-9]{1,10}\.0;tcp://[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}")
    ]  # of mpirun: job, address and port
    vpids: dict[str, Annotated[int, Range(1, 10**6)]]  # by address: the number of the daemon
    node_regex: Annotated[str, Matches(r"[A-Za-z0-9._,:@()\[\]-]*"), Size(10_000)] = ""  # sent later if it is long


@dataclass(frozen=True)
class Stopped:
    """`stop`."""

    stopped: bool


@dataclass(frozen=True)
class EndRequested:
    """`request-stop` and `yield`: False if the attempt has already ended."""

    requested: bool


@dataclass(frozen=True)
class DatasetFiles:
    """`data-list`: the files of a dataset on a phone, and its free space."""

    digest: Name | None
    free_bytes: Bytes
    files: Annotated[dict[Name, Annotated[str, Matches(SHA256)]], Size(10_000)]  # sha256 by name

    def missing(self, manifest: DatasetManifest, required: frozenset[str]) -> frozenset[str]:
        return frozenset(
            file.name for file in manifest.files if file.name in required and self.files.get(file.name) != file.sha256
        )


@dataclass(frozen=True)
class DatasetRemoved:
    """`data-remove`."""

    removed: bool


@dataclass(frozen=True)
class DeliveryReply:
    """`data-receive`: how the delivery to one phone ended."""

    phone: Name
    error: Annotated[str | None, Size(400)]
    code: Annotated[ErrorCode, Or(ErrorCode.UNKNOWN)] = ErrorCode.UNKNOWN
    damaged: Annotated[Name | None, Or(None)] = None  # file that arrived corrupt


@dataclass(frozen=True)
class OpenClDevice:
    device: Label
    driver: Label
    version: Label
    kind: Annotated[str, OneOf(OPENCL_DEVICE_TYPES)]
    compute_units: Count
    work_group: Count
    local_bytes: Bytes
    allocation_bytes: Bytes
    memory_bytes: Bytes
    unified: bool


@dataclass(frozen=True)
class OpenClProbe:
    device: OpenClDevice | None
    why: str = ""  # there is none


@dataclass(frozen=True)
class DeviceKindReply:
    """`device-kind`."""

    model: Label
    arch: Label
    cores: Annotated[int, Range(1, 1024)]
    big_cores: Annotated[int, Range(0, 1024)]
    isa: Label | None
    core: Label  # hash of the compute core
    opencl_kernels: Label  # hash of the OpenCL kernels and of how they are launched
    opencl: OpenClProbe


@dataclass(frozen=True)
class TuneRow:
    """`tune`: one measurement, or the best one (`part` is `best`)."""

    part: Annotated[str, Size(20)]
    what: Annotated[str, Size(100)] = ""
    step_s: Annotated[float | None, Range(1e-9, 1e7)] = None
    images_per_s: Annotated[float | None, Range(1e-9, 1e9)] = None
    error: Annotated[str | None, Size(300)] = None
    device_config: DeviceConfig | None = None


@dataclass(frozen=True)
class CheckRow:
    """`check-assumptions`: a check starts (without a status), or has a result."""

    check: Name
    status: Annotated[Status | None, Or(Status.UNKNOWN)] = None
    detail: Annotated[str, Size(600), Or("invalid result from the phone")] = ""
    evidence: Annotated[object, Or(None)] = None


@dataclass(frozen=True)
class SelftestCheck:
    name: Name
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class SelftestReport:
    """`selftest`."""

    checks: tuple[SelftestCheck, ...]


@dataclass(frozen=True)
class AllreduceReport:
    """`allreduce-bench`."""

    seconds: Annotated[float, Range(1e-9, 1e7)]
    all: tuple[Seconds, ...]
    bytes: Bytes
    encoded_bytes: Bytes
    sent_bytes: Bytes
    cpu_seconds: Seconds
    correct: bool


@dataclass(frozen=True)
class LinpackPhoneReport:
    peak_gflops: Annotated[float, Range(0, 1e6)]
    update_gflops: Annotated[float, Range(0, 1e6)]
    seconds: dict[Name, Seconds]  # by phase


@dataclass(frozen=True)
class LinpackReport:
    """`linpack`."""

    seconds: Annotated[float, Range(1e-9, 1e7)]
    residual: Annotated[float, Range(0, 1e300)]
    limit: Annotated[float, Range(0, 1e9)]
    passed: bool
    threads: Count
    isa: Label
    phones: tuple[LinpackPhoneReport, ...]


@dataclass(frozen=True)
class BatteryReply:
    percentage: Annotated[float | None, Range(0, 100), Or(None)] = None
    status: Annotated[Name | None, Or(None)] = None
    plugged: Annotated[Name | None, Or(None)] = None
    temperature: Celsius = None


@dataclass(frozen=True)
class AgentRelease:
    release: Annotated[Name | None, Or(None)] = None
    version: Annotated[Name | None, Or(None)] = None


@dataclass(frozen=True)
class Telemetry:
    """`telemetry`. Phones differ in what they let apps read: an implausible value counts as unknown."""

    epoch: Reading = None
    agent: Annotated[AgentRelease, Or(AgentRelease())] = AgentRelease()
    temperature_c: Celsius = None
    temperature_source: Annotated[Name | None, Or(None)] = None
    battery: Annotated[BatteryReply | None, Or(None)] = None
    frequency_mhz: Annotated[float | None, Range(0, 1e5), Or(None)] = None
    frequency_max_mhz: Annotated[float | None, Range(0, 1e5), Or(None)] = None
    memory_free_mb: Megabytes = None
    disk_free_mb: Megabytes = None
    run: Annotated[RunSummary | None, Or(None)] = None
