"""What the host and the phones say to each other: JSON, with these shapes.

The host writes a RunSpec and a LaunchSpec; the phones answer with events, one JSON object a line. Both sides
import this module, and nothing here imports anything of theirs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_VERSION = 2
SYNTHETIC = "synthetic"  # DataSpec.name: random samples instead of a dataset


class SchemaError(ValueError):
    """A document that is not what it says it is; names the key."""


@dataclass(frozen=True)
class RankSpec:
    """One rank of the ring: which phone, where it is plugged in, how many images a step it takes."""

    rank: int
    phone: str
    switch: str
    port: int
    address: str
    batch: int


@dataclass(frozen=True)
class Share:
    """Samples that one phone had for itself when the run was launched: as many as its batch is of the global one."""

    phone: str
    batch: int


@dataclass(frozen=True)
class Turn:
    """Images `first` up to `end` of the `share`'s batch at every step."""

    share: int
    first: int
    end: int


@dataclass(frozen=True)
class DataSpec:
    """Where samples come from: `name` is a dataset staged under ~/.clusterctl/data, or SYNTHETIC."""

    name: str
    samples: int
    shape: tuple[int, int, int]  # height, width, channels, as stored
    classes: int
    image: tuple[int, int, int] | None = None  # what the network reads, where that is cut out of what is stored
    test_samples: int = 0
    whole: bool = False  # every phone has all samples, not only its share
    augment: str = "none"
    on_damage: str = "refuse"  # or skip
    digest: str = ""  # names the content, so that a phone does not train on an older dataset of the same name
    shares: tuple[Share, ...] = ()  # where not all have all, once phones changed; before: the ranks and their batches
    turns: tuple[tuple[Turn, ...], ...] = ()  # by rank, which parts of which shares it takes; before: its own

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return self.image or self.shape


@dataclass(frozen=True)
class OptimizerSpec:
    method: str = "sgd"  # or nesterov, lars, lamb
    learning_rate: float = 0.01  # at its highest
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay_all: bool = False  # biases and normalisations as well
    second_momentum: float = 0.999  # lamb's
    epsilon: float = 1e-6  # lamb's
    trust: float = 0.001  # lars's coefficient
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class ScheduleSpec:
    """How the learning rate goes on from its highest, after a linear rise over `warmup_steps`."""

    policy: str = "constant"  # or step, polynomial, cosine
    warmup_steps: int = 0
    every_steps: int = 0  # step: times `gamma` each so many
    gamma: float = 0.1
    power: float = 1.0  # polynomial's
    floor: float = 0.0  # never below this part of the highest


@dataclass(frozen=True)
class Way:
    """How a phone computes, where that is not as the run says: by what was measured on a phone of its kind."""

    backend: str = ""
    threads: int = 0
    little: bool = False  # little cores compute as well
    gpu_share: float | None = None  # hybrid: the part of its batch that the GPU computes
    tiles: dict[str, int] = field(default_factory=dict)  # OpenCL: how kernels cut their work
    refused: str = ""  # why the phone does not compute as it was told; its own word


@dataclass(frozen=True)
class RunSpec:
    run_id: str
    model: str
    data: DataSpec
    ranks: tuple[RankSpec, ...]
    steps: int
    seed: int = 0
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    schedule: ScheduleSpec = field(default_factory=ScheduleSpec)
    backend: str = "cpu"  # or opencl, hybrid, reference; auto: as measured, else cpu
    ways: dict[str, Way] = field(default_factory=dict)  # by phone
    algorithm: str = "ring"  # or hierarchical, mpi, chunkwise, auto
    wire: str = "fp32"  # or fp16, bf16, int8, powersgd, auto
    overlap: bool = True  # gradients travel while others are still being computed
    group: int = 0  # most phones of a hierarchy's groups; 0: a switch's, or, with auto, by measurement
    bucket_bytes: int = 0  # of gradients handed over at once; 0: by measurement
    micro_batch: int = 0  # images computed at once; 0: a rank's whole batch, or as much of it as fits
    local_steps: int = 1  # more: phones step alone in between, and average what they learned
    evaluate_every: int = 0  # steps; 0: at the end only
    checkpoint_every: int = 0  # steps; 0: at the end only
    weights: str = ""  # file in the run's directory to start from
    freeze: tuple[str, ...] = ()  # layers that do not learn, by name or pattern
    model_file: str = ""  # file in the run's directory that builds the network; `model` then names its function
    balance: str = "auto"  # images move to phones that are faster; or off
    threads: int = 0  # 0: as many as the phone's big cores, or as measurement says
    memory_bytes: int = 0  # 0: as little as it takes without arithmetic done twice
    half: bool = False  # activations are stored in fp16
    created: float = 0.0  # epoch seconds on the host
    attempt: int = 0  # how often it was started again; ranks and their batches may change then, nothing else
    resume: str = ""  # file in the run's directory: the checkpoint to go on from where no phone holds anything newer
    parent: str = ""  # the run which that checkpoint is of
    schema: int = SCHEMA_VERSION
    outer_rate: float = 1.0  # of what phones learned alone; 1: their average
    outer_momentum: float = 0.0  # with which that is stepped along

    @property
    def network(self) -> str:
        """As a person wrote it, without the folder: resnet50, or net.py:build."""
        return f"{self.model_file}:{self.model}" if self.model_file else self.model

    @property
    def global_batch(self) -> int:
        return sum(rank.batch for rank in self.ranks)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        raw = _object(text, "run.json")
        try:
            if raw["schema"] != SCHEMA_VERSION:
                raise SchemaError(f"run.json has schema {raw['schema']}, this agent speaks {SCHEMA_VERSION}")
            parts = {
                "data": _data(raw["data"]),
                "ranks": tuple(RankSpec(**rank) for rank in raw["ranks"]),
                "optimizer": OptimizerSpec(**raw["optimizer"]),
                "schedule": ScheduleSpec(**raw["schedule"]),
                "freeze": tuple(raw["freeze"]),
                "ways": {phone: Way(**way) for phone, way in raw.get("ways", {}).items()},
            }
            return cls(**{**raw, **parts})
        except KeyError as missing:
            raise SchemaError(f"run.json lacks {missing}") from None
        except (TypeError, AttributeError) as mismatch:
            raise SchemaError(f"run.json: {mismatch}") from None


@dataclass(frozen=True)
class LaunchSpec:
    """How the head phone starts an attempt: an argument list and what to add to the environment."""

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
        except (TypeError, ValueError) as error:
            raise SchemaError(f"launch.json is garbled: {error}") from None


def _data(raw: dict[str, Any]) -> DataSpec:
    image = raw["image"]
    parts = {
        "shape": tuple(raw["shape"]),
        "image": None if image is None else tuple(image),
        "shares": tuple(Share(**share) for share in raw.get("shares", ())),
        "turns": tuple(tuple(Turn(**turn) for turn in turns) for turns in raw.get("turns", ())),
    }
    return DataSpec(**{**raw, **parts})


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(f"{name} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise SchemaError(f"{name} is not a JSON object")
    return raw
