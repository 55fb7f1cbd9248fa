"""dataset.json: a dataset and the files it consists of. The same file on the host and on every phone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode

MANIFEST_FILE = "dataset.json"
VERSION = 1
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SHARD_NAME = re.compile(r"(train|test)-[0-9]{5}\.shard")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_STATISTIC = 1e6  # of a mean or a standard deviation: far beyond what images of bytes have

Span = tuple[int, int]  # samples [start, end)


class ManifestError(AgentError):
    """A dataset.json that is damaged or of another version."""

    code = ErrorCode.DATA_DAMAGED


@dataclass(frozen=True)
class ShardFile:
    name: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class DatasetManifest:
    name: str
    format: str  # what it was made from
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # by channel, in [0, 1], of the training samples
    std: tuple[float, ...]
    train: tuple[ShardFile, ...]
    test: tuple[ShardFile, ...]

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.train)

    @property
    def test_samples(self) -> int:
        return sum(shard.samples for shard in self.test)

    @property
    def files(self) -> tuple[ShardFile, ...]:
        return self.train + self.test

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.files)

    @property
    def digest(self) -> str:
        """Identifies the content: equal for the same samples in the same order."""
        content = json.dumps({**asdict(self), "name": "", "format": ""}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


def parse_manifest(raw: Any) -> DatasetManifest:
    """Validates every field: on a phone the document came over the network, and its names become paths."""
    try:
        fields = dict(raw)
        if fields.pop("version") != VERSION:
            raise ManifestError("dataset.json has an unsupported version: push the dataset again")
        for part in ("train", "test"):
            fields[part] = tuple(_shard(each, part) for each in fields[part])
        for part in ("shape", "class_names", "mean", "std"):
            fields[part] = tuple(fields[part])
        made = DatasetManifest(**fields)
    except (KeyError, TypeError, ValueError):
        raise ManifestError("dataset.json is damaged: push the dataset again") from None
    if not _is_valid(made):
        raise ManifestError("dataset.json is damaged: push the dataset again")
    return made


def _is_valid(made: DatasetManifest) -> bool:
    return (
        isinstance(made.name, str)
        and NAME.fullmatch(made.name) is not None
        and len({shard.name for shard in made.files}) == len(made.files)
        and len(made.shape) == 3
        and all(type(side) is int and side > 0 for side in made.shape)
        and len(made.mean) == len(made.std) == made.shape[2]
        and all(
            type(figure) in {int, float} and -MAX_STATISTIC < figure < MAX_STATISTIC
            for figure in (*made.mean, *made.std)
        )
        and min(made.std) > 0
        and all(isinstance(name, str) for name in (made.format, *made.class_names))
    )


def _shard(raw: dict[str, Any], part: str) -> ShardFile:
    shard = ShardFile(**raw)
    if not (type(shard.samples) is type(shard.bytes) is int):
        raise TypeError(shard.name)
    match = SHARD_NAME.fullmatch(shard.name)
    if not match or match[1] != part or not SHA256.fullmatch(shard.sha256) or min(shard.samples, shard.bytes) < 1:
        raise ValueError(shard.name)
    return shard


def spans(shards: Sequence[ShardFile]) -> Iterator[tuple[ShardFile, Span]]:
    """Each shard with the samples that it holds."""
    start = 0
    for shard in shards:
        yield shard, (start, start + shard.samples)
        start += shard.samples


def shards_with(shards: Sequence[ShardFile], wanted: Sequence[Span]) -> list[ShardFile]:
    """The shards that hold any of these samples."""
    return [
        shard for shard, (start, end) in spans(shards) if any(start < last and end > first for first, last in wanted)
    ]
