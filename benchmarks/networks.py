"""The ten networks of Table I of the paper, their batch sizes there, and random training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.plan.forecast import published
from phone_agent import models
from phone_agent.device.memory import peak_bytes
from phone_agent.nn.graph import Graph

TABLE_I = published.BATCHES


@dataclass(frozen=True)
class Sample:
    images: NDArray[np.float32]
    labels: NDArray[np.int32]


def network(name: str) -> Graph:
    """The network as published."""
    return models.build(name)


def sample(graph: Graph, batch: int, seed: int = 0) -> Sample:
    """Random images: the time of a step does not depend on their content."""
    numbers = np.random.default_rng(seed)
    images: NDArray[Any] = numbers.standard_normal((batch, *graph.shape), dtype=np.float32)
    return Sample(images, numbers.integers(0, graph.classes, batch).astype(np.int32))


def peak_rss_mb() -> float:
    """Peak resident set of this process so far, in MB (10^6 bytes)."""
    return peak_bytes() / 1e6
