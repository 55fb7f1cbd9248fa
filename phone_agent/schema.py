"""What the host and the phones say to each other: JSON, with these shapes.

The host writes a RunSpec and a LaunchSpec; the phones answer with events, one JSON object a line. Both sides
import this module, and nothing here imports anything of theirs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_VERSION = 1


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
class DataSpec:
    """Where samples come from: `name` is a dataset staged under ~/.clusterctl/data, or 'synthetic'."""

    name: str
    samples: int
    shape: tuple[int, int, int]  # height, width, channels
    classes: int


@dataclass(frozen=True)
class OptimizerSpec:
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0


@dataclass(frozen=True)
class RunSpec:
    run_id: str
    model: str
    data: DataSpec
    ranks: tuple[RankSpec, ...]
    steps: int
    seed: int = 0
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    backend: str = "cpu"
    algorithm: str = "ring"
    wire: str = "fp32"
    threads: int = 0  # 0: as many as the phone's big cores
    memory_bytes: int = 0  # 0: as little as it takes without arithmetic done twice
    created: float = 0.0  # epoch seconds on the host
    schema: int = SCHEMA_VERSION

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
            data = DataSpec(**{**raw["data"], "shape": tuple(raw["data"]["shape"])})
            ranks = tuple(RankSpec(**rank) for rank in raw["ranks"])
            optimizer = OptimizerSpec(**raw["optimizer"])
            return cls(**{**raw, "data": data, "ranks": ranks, "optimizer": optimizer})
        except KeyError as missing:
            raise SchemaError(f"run.json lacks {missing}") from None
        except TypeError as mismatch:
            raise SchemaError(f"run.json: {mismatch}") from None


@dataclass(frozen=True)
class LaunchSpec:
    """How the head phone starts the run: an argument list and what to add to the environment."""

    run_id: str
    argv: tuple[str, ...]
    env: dict[str, str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LaunchSpec:
        raw = _object(text, "launch.json")
        try:
            return cls(run_id=str(raw["run_id"]), argv=tuple(map(str, raw["argv"])), env=dict(raw["env"]))
        except KeyError as missing:
            raise SchemaError(f"launch.json lacks {missing}") from None


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(f"{name} is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise SchemaError(f"{name} is not a JSON object")
    return raw
