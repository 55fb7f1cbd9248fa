"""Times training steps with one device config."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from phone_agent import models
from phone_agent.backends import get_backend
from phone_agent.backends.hybrid import HybridExecutable
from phone_agent.contract.schema import DeviceConfig
from phone_agent.contract.tune import TuneRequest
from phone_agent.device.step_timer import time_steps
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options


@dataclass(frozen=True)
class StepTiming:
    step_s: float  # the fastest
    gpu_share: float | None


def time_config(config: DeviceConfig, request: TuneRequest, runs: int) -> StepTiming:
    """The fastest of `runs` steps, forward and backward; the rest of a step takes the same time with every config."""
    graph = models.build(request.model)
    backend, state = get_backend(config.backend), State(graph, 0)
    state.move(backend.array)
    threads = config.threads or int(os.environ.get("OMP_NUM_THREADS", "1"))
    options = Options(threads=threads, tiles=tuple(sorted(config.tiles.items())), gpu_share=config.gpu_fraction)
    executable = backend.compile(graph, state, request.batch, options)
    images = np.random.default_rng(0).standard_normal((request.batch, *graph.shape)).astype(np.float32)
    labels = np.arange(request.batch) % graph.classes
    seconds = time_steps(lambda: executable.loss_and_gradients(images, labels, 1.0), runs)
    share = executable.gpu_share if isinstance(executable, HybridExecutable) else None
    return StepTiming(min(seconds), share)
