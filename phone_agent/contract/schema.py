"""JSON documents that the host and the phones exchange.

The host writes a RunSpec and a LaunchSpec; the phones answer with events, one JSON object per line. Both sides import
this module.

The defaults of the groups below (OptimizerSpec to RecoverySpec) are the defaults of `clusterctl launch` as well: see
orchestrator.launch.defaults.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any

from phone_agent.contract.choices import BACKENDS, MAX_THREADS
from phone_agent.contract.committed_step import CommittedStep
from phone_agent.contract.decode import OneOf, Range

SCHEMA_VERSION = 4
SYNTHETIC = "synthetic"  # DataSpec.name: random samples instead of a dataset


class SchemaError(ValueError):
    """A document does not match its schema; the message names the key."""


@dataclass(frozen=True)
class RankSpec:
    """One rank of the ring: its phone, the switch port it is plugged into, and its batch size per step."""

    rank: int
    phone: str
    switch: str
    port: int
    address: str
    batch: int


@dataclass(frozen=True)
class Partition:
    """The samples assigned to one phone at launch. Its share of the dataset is its share of the global batch."""

    phone: str
    batch: int


@dataclass(frozen=True)
class PartitionSlice:
    """Images `first` to `end` (exclusive) of the batch that a partition contributes to every step."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class DataSpec:
    """The training data: `name` is a dataset staged under ~/.clusterctl/data, or SYNTHETIC for random images."""

    name: str
    samples: int
    shape: tuple[int, int, int]  # height, width, channels, as stored
    classes: int
    crop: tuple[int, int, int] | None = None  # shape the network reads, if it is cropped from the stored shape
    test_samples: int = 0
    replicated: bool = False  # every phone has all samples, not only its own partition
    augment: str = "none"  # or flip, cifar, imagenet
    on_corrupt: str = "fail"  # or skip
    digest: str = ""  # of the content: a phone must not train on an older dataset of the same name
    partitions: tuple[Partition, ...] = ()  # set once the phones have changed; until then the ranks and their batches
    assignments: tuple[tuple[PartitionSlice, ...], ...] = ()  # by rank; empty: each rank has its own partition

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.crop or self.shape


@dataclass(frozen=True)
class OptimizerSpec:
    name: str = "sgd"  # or nesterov, lars, lamb
    learning_rate: float = 0.02  # peak value, after warm-up
    momentum: float = 0.9  # LAMB: beta1
    weight_decay: float = 0.0
    decay_all: bool = False  # apply weight decay to biases and normalization parameters as well
    beta2: float = 0.999  # LAMB
    epsilon: float = 1e-6  # LAMB
    lars_coefficient: float = 0.001  # LARS trust coefficient
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class ScheduleSpec:
    """Learning rate schedule: a linear warm-up over `warmup_steps`, then the policy."""

    policy: str = "constant"  # or step, polynomial, cosine
    warmup_steps: int = 0
    decay_steps: int = 0  # step: multiply the learning rate by `gamma` every N steps
    gamma: float = 0.1
    power: float = 1.0  # polynomial
    min_lr_ratio: float = 0.0  # polynomial and cosine: final learning rate, as a fraction of the peak


@dataclass(frozen=True)
class CommunicationSpec:
    """How gradients are exchanged."""

    algorithm: str = "auto"  # or ring, hierarchical, mpi, chunkwise; auto: by a link probe
    wire: str = "fp32"  # or fp16, bf16, int8, powersgd, auto
    overlap: bool = True  # send gradients while others are still being computed
    group_size: int = 0  # hierarchical: maximum phones per group; 0: one group per switch, or with auto by probe
    bucket_bytes: int = 0  # gradient bytes per allreduce; 0: by probe
    local_steps: int = 1  # more than 1: local SGD, phones synchronize only every N steps
    outer_learning_rate: float = 1.0  # local SGD; 1: plain averaging
    outer_momentum: float = 0.0  # local SGD; DiLoCo uses 0.9


@dataclass(frozen=True)
class DeviceConfig:
    """How one phone computes, if it differs from the run's ComputeSpec: as measured on a phone of its kind."""

    backend: Annotated[str, OneOf(("", *BACKENDS))] = ""
    threads: Annotated[int, Range(0, MAX_THREADS)] = 0
    little_cores: bool = False  # use the little cores as well
    gpu_fraction: Annotated[float | None, Range(0, 1)] = None  # hybrid: fraction of the batch that the GPU computes
    tiles: dict[str, Annotated[int, Range(1, 1 << 20)]] = field(default_factory=dict)  # OpenCL kernel tile sizes
    fallback_reason: str = ""  # why the phone itself fell back to the CPU
    fallback_from: str = ""  # the backend that it should have used


@dataclass(frozen=True)
class ComputeSpec:
    """How each phone computes."""

    backend: str = "auto"  # or cpu, opencl, hybrid, reference; auto: as measured by `clusterctl tune`, else cpu
    threads: int = 0  # 0: one per big core, or as measured
    memory_bytes: int = 0  # limit per phone; 0: enough to train without recomputing activations
    micro_batch: int = 0  # images computed at a time; 0: the whole batch, or as much as fits in memory
    min_micro_batch: int = 1  # no fewer at a time: batch normalization over 1x1 maps needs 2
    activations: str = "fp32"  # storage format; or fp16
    load_balancing: str = "auto"  # move images from slow phones to fast ones; or off
    devices: dict[str, DeviceConfig] = field(default_factory=dict)  # by phone name


@dataclass(frozen=True)
class RecoverySpec:
    """What happens when phones are lost."""

    checkpoint_every: int = 0  # steps; 0: by time
    checkpoint_minutes: float = 10.0  # 0: by steps; if both are 0, only at the end
    spares: tuple[str, ...] = ()  # phones that replace lost ones
    min_phones: int = 0  # wait below this number; 0: more than half of those it was launched with
    max_restarts: int = 20


@dataclass(frozen=True)
class ResumeSpec:
    """The state that an attempt continues from. All ranks start from this one and discard any other."""

    step: int = 0  # the last completed step; 0: from the initial weights
    attempt: int = 0  # that committed the step which phones hold in memory
    file: str = ""  # a checkpoint in the run's directory on the head phone; empty: phones hold the step in memory

    @property
    def in_memory(self) -> CommittedStep | None:
        """The state that phones hold in memory; None if this is another state."""
        return None if self.file or not self.step else CommittedStep(self.step, self.attempt)


@dataclass(frozen=True)
class RunSpec:
    run_id: str
    model: str
    data: DataSpec
    ranks: tuple[RankSpec, ...]
    steps: int
    seed: int = 0
    eval_every: int = 0  # steps; 0: only at the end
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    schedule: ScheduleSpec = field(default_factory=ScheduleSpec)
    communication: CommunicationSpec = field(default_factory=CommunicationSpec)
    compute: ComputeSpec = field(default_factory=ComputeSpec)
    recovery: RecoverySpec = field(default_factory=RecoverySpec)
    weights: str = ""  # initial weights: a file in the run's directory
    freeze: tuple[str, ...] = ()  # layers that are not trained, by name or pattern
    model_file: str = ""  # Python file in the run's directory that builds the network; `model` names its function
    created: float = 0.0  # epoch seconds on the host
    attempt: int = 0  # number of restarts; ranks and their batches may change then, nothing else
    resume: ResumeSpec = field(default_factory=ResumeSpec)
    parent: str = ""  # id of the run that the first attempt resumed from
    schema: int = SCHEMA_VERSION

    @property
    def network(self) -> str:
        """The model as the user named it, without the folder: resnet50, or net.py:build."""
        return f"{self.model_file}:{self.model}" if self.model_file else self.model

    @cached_property
    def global_batch(self) -> int:
        return sum(rank.batch for rank in self.ranks)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        raw = _object(text, "run.json")
        try:
            if raw["schema"] != SCHEMA_VERSION:
                raise SchemaError(f"run.json has schema {raw['schema']}, this agent supports schema {SCHEMA_VERSION}")
            groups = {
                "data": _data(raw["data"]),
                "ranks": tuple(RankSpec(**rank) for rank in raw["ranks"]),
                "optimizer": OptimizerSpec(**raw["optimizer"]),
                "schedule": ScheduleSpec(**raw["schedule"]),
                "communication": CommunicationSpec(**raw["communication"]),
                "compute": _compute(raw["compute"]),
                "recovery": RecoverySpec(**{**raw["recovery"], "spares": tuple(raw["recovery"]["spares"])}),
                "freeze": tuple(raw["freeze"]),
                "resume": ResumeSpec(**raw["resume"]),
            }
            return cls(**{**raw, **groups})
        except KeyError as missing:
            raise SchemaError(f"run.json lacks {missing}") from None
        except (TypeError, AttributeError) as mismatch:
            raise SchemaError(f"run.json: {mismatch}") from None


@dataclass(frozen=True)
class LaunchSpec:
    """How the head phone starts an attempt: the mpirun command and the environment variables to add."""

    run_id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    attempt: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LaunchSpec:
        raw = _object(text, "launch.json")
        try:
            argv = tuple(map(str, raw["argv"]))
            return cls(run_id=str(raw["run_id"]), argv=argv, env=dict(raw["env"]), attempt=int(raw["attempt"]))
        except KeyError as missing:
            raise SchemaError(f"launch.json lacks {missing}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise SchemaError(f"launch.json: {error}") from None


def _data(raw: dict[str, Any]) -> DataSpec:
    crop = raw["crop"]
    parts = {
        "shape": tuple(raw["shape"]),
        "crop": None if crop is None else tuple(crop),
        "partitions": tuple(Partition(**each) for each in raw.get("partitions", ())),
        "assignments": tuple(tuple(PartitionSlice(**each) for each in slices) for slices in raw.get("assignments", ())),
    }
    return DataSpec(**{**raw, **parts})


def _compute(raw: dict[str, Any]) -> ComputeSpec:
    devices = {phone: DeviceConfig(**config) for phone, config in raw.get("devices", {}).items()}
    return ComputeSpec(**{**raw, "devices": devices})


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{name} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise SchemaError(f"{name} is not a JSON object")
    return raw
