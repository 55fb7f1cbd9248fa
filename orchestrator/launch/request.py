"""What a person may ask of a run. Imports next to nothing: the command line is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AUTO = 0  # as a batch: the largest that fits
FP32_ONLY = frozenset({"mpi", "chunkwise"})  # algorithms of MPI's own, which know no other wire
SPELLED = {"learning_rate": "--lr", "bucket_bytes": "--bucket", "memory_bytes": "--memory"}
SWITCHED_OFF = {"overlap": "--no-overlap", "new_head": "--keep-head"}


@dataclass(frozen=True)
class Span:
    """So many steps, or epochs: which of them is known only with the data and the batch."""

    count: float
    epochs: bool = False

    def steps(self, per_epoch: float) -> int:
        return round(self.count * per_epoch) if self.epochs else int(self.count)


@dataclass(frozen=True)
class LaunchRequest:
    """The flags of `clusterctl launch`, before phones and data are known. None: as the recipe says, or the default."""

    model: str | None = None
    recipe: str | None = None
    steps: int | None = None
    epochs: float | None = None
    batch: int | None = None
    global_batch: int | None = None
    micro_batch: int = 0
    seed: int = 0
    augment: str | None = None
    on_corrupt: str | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    decay_all: bool | None = None
    trust: float | None = None
    second_momentum: float | None = None
    epsilon: float | None = None
    label_smoothing: float | None = None
    schedule: str | None = None
    warmup: Span | None = None
    step_every: Span | None = None
    gamma: float | None = None
    power: float | None = None
    floor: float | None = None
    algorithm: str = "auto"  # a ring, unless another of ours is clearly faster on the line that is measured
    wire: str = "fp32"
    overlap: bool = True
    group: int = 0  # most phones of a hierarchy's groups; 0: a switch's
    bucket_bytes: int = 0  # 0: by measurement
    local_steps: int = 1
    outer_rate: float = 1.0
    outer_momentum: float = 0.0
    balance: str = "auto"  # or off: every phone keeps its batch
    backend: str = "auto"  # as measured by `clusterctl tune`, else cpu
    threads: int = 0  # of each phone; 0: its big cores
    memory_bytes: int = 0  # of each phone; 0: as little as it takes without arithmetic done twice
    half: bool = False  # activations are stored in fp16
    evaluate_every: int = 0  # steps; 0: at the end only
    checkpoint_every: int = 0  # steps; 0: at the end only
    weights: Path | None = None  # to start from
    new_head: bool | None = None  # the last layer starts anew, or as given; None: anew where the classes are others
    freeze: tuple[str, ...] = ()  # layers that do not learn, by name or pattern


def flag_of(name: str, value: object) -> str:
    """As the command line calls a field of this value."""
    off = SWITCHED_OFF.get(name) if value is False else None
    return off or SPELLED.get(name) or "--" + name.replace("_", "-")
