"""A launch request: the options the user gave, before recipe, defaults, data and phones are known.

Its groups have the shape of the groups in a RunSpec. None means "not given": the recipe decides, else the default.
The command line is built from these fields, so this module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from phone_agent.contract.choices import (
    Activations,
    Algorithm,
    Augmentation,
    Backend,
    LoadBalancing,
    OnCorrupt,
    Optimizer,
    SchedulePolicy,
    Wire,
)


@dataclass(frozen=True)
class DataOptions:
    source: str | None = None  # auto, synthetic, the name of a stored dataset, or a folder
    replicated: bool | None = None  # all samples on every phone, or one partition each
    augment: Augmentation | None = None
    on_corrupt: OnCorrupt | None = None


@dataclass(frozen=True)
class OptimizerOptions:
    name: Optimizer | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    decay_all: bool | None = None
    beta2: float | None = None
    epsilon: float | None = None
    lars_coefficient: float | None = None
    label_smoothing: float | None = None


@dataclass(frozen=True)
class ScheduleOptions:
    """Lengths in steps or in epochs; the run spec has steps only."""

    policy: SchedulePolicy | None = None
    warmup_steps: int | None = None
    warmup_epochs: float | None = None
    decay_steps: int | None = None
    decay_epochs: float | None = None
    gamma: float | None = None
    power: float | None = None
    min_lr_ratio: float | None = None


@dataclass(frozen=True)
class CommunicationOptions:
    algorithm: Algorithm | None = None
    wire: Wire | None = None
    overlap: bool | None = None
    group_size: int | None = None
    bucket_bytes: int | None = None
    local_steps: int | None = None
    outer_learning_rate: float | None = None
    outer_momentum: float | None = None


@dataclass(frozen=True)
class ComputeOptions:
    backend: Backend | None = None
    threads: int | None = None
    memory_bytes: int | None = None
    micro_batch: int | None = None
    activations: Activations | None = None
    load_balancing: LoadBalancing | None = None


@dataclass(frozen=True)
class RecoveryOptions:
    checkpoint_every: int | timedelta | None = None  # steps or time; 0: only at the end
    spares: str | None = None  # a selector, as in --limit
    min_phones: int | None = None
    max_restarts: int | None = None


@dataclass(frozen=True)
class LaunchRequest:
    model: str | None = None
    recipe: str | None = None
    weights: Path | None = None
    new_head: bool | None = None  # initialize the last layer, or keep it; None: if the classes differ
    freeze: tuple[str, ...] | None = None
    steps: int | None = None
    epochs: float | None = None
    batch: int | Literal["auto"] | None = None  # per phone
    global_batch: int | None = None
    seed: int | None = None
    eval_every: int | None = None
    data: DataOptions = field(default_factory=DataOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    communication: CommunicationOptions = field(default_factory=CommunicationOptions)
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)


# Flags that are not spelled like their field. Of two names, the second switches the option off.
_FLAG_NAMES: Final = {
    "new_head": ("--new-head", "--keep-head"),
    "data.source": ("--data",),
    "data.replicated": ("--replicate-data", "--shard-data"),
    "optimizer.name": ("--optimizer",),
    "optimizer.learning_rate": ("--lr",),
    "schedule.policy": ("--schedule",),
    "communication.overlap": ("--overlap", "--no-overlap"),
    "communication.bucket_bytes": ("--bucket-size",),
    "communication.outer_learning_rate": ("--outer-lr",),
    "compute.memory_bytes": ("--memory",),
    "recovery.spares": ("--spare",),
}


def flag_names(path: str) -> tuple[str, ...]:
    """The spelling of an option on the command line. `path`: such as `seed` or `optimizer.momentum`."""
    return _FLAG_NAMES.get(path) or ("--" + path.rpartition(".")[2].replace("_", "-"),)


def flag_of(path: str, value: object) -> str:
    """The flag that sets an option to this value."""
    on, *off = flag_names(path)
    return off[0] if off and value is False else on


def option_paths(group: type[Any] = LaunchRequest, prefix: str = "") -> Iterator[str]:
    """The paths of all options, those of the groups included."""
    for each in fields(group):
        factory: Any = each.default_factory
        if is_dataclass(factory):
            yield from option_paths(factory, f"{each.name}.")  # type: ignore[arg-type]
        else:
            yield prefix + each.name


def given_options(request: LaunchRequest) -> dict[str, Any]:
    """The options that were given, by path."""
    values = {path: get_option(request, path) for path in option_paths()}
    return {path: value for path, value in values.items() if value is not None}


def get_option(request: LaunchRequest, path: str) -> Any:
    group, _, name = path.rpartition(".")
    return getattr(getattr(request, group) if group else request, name)


def make_request(options: dict[str, Any]) -> LaunchRequest:
    """The inverse of `given_options`."""
    top: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for path, value in options.items():
        group, _, name = path.rpartition(".")
        (groups.setdefault(group, {}) if group else top)[name] = value
    made = {each.name: each.default_factory for each in fields(LaunchRequest) if each.name in groups}
    return LaunchRequest(**top, **{name: kind(**groups[name]) for name, kind in made.items()})  # type: ignore[operator]
