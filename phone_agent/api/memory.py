"""The memory that training takes on a phone, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phone_agent.backends.opencl.device import Limits
from phone_agent.backends.opencl.memory_estimate import ADRENO_640, options_for_backend
from phone_agent.contract.choices import GPU_BACKENDS
from phone_agent.contract.schema import CommunicationSpec, OptimizerSpec
from phone_agent.contract.sizes import FLOAT
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import packing_of
from phone_agent.nn.plan.memory_plan import DoesNotFitError, estimate_memory, largest_batch
from phone_agent.nn.plan.options import Options
from phone_agent.train.device_config import mappable_buffers
from phone_agent.train.memory_budget import PERCENT, checkpoint_floats, memckpt_floats, state_floats


def options_on(backend: str, graph: Graph, options: Options, gpu: Limits | None = None) -> Options:
    """The options as this backend compiles the graph. `gpu`: limits of its device; None: those of a typical phone."""
    return options_for_backend(backend, options, graph.shape, gpu or ADRENO_640)


def training_options(
    graph: Graph,
    optimizer: OptimizerSpec,
    *,
    backend: str = "cpu",
    threads: int = 1,
    half: bool = False,
    wire: str = "fp32",
    local_steps: int = 1,
    outer_momentum: float = 0.0,
    tiles: Mapping[str, int] | None = None,
    gpu: Limits | None = None,
) -> Options:
    """The options that a phone trains with, so that plans made with them take the memory that it takes.

    They count all that is kept from step to step, in the process and outside of it as in-memory checkpoints.
    """
    communication = CommunicationSpec(wire=wire, local_steps=local_steps, outer_momentum=outer_momentum)
    floats = state_floats(optimizer, communication)
    floats += memckpt_floats(optimizer, communication, mappable_buffers(backend))
    options = Options(threads=threads, half=half, moments=floats)
    if backend in GPU_BACKENDS:
        options = replace(options, tiles=tuple(sorted((tiles or {}).items())))
    return options_on(backend, graph, options, gpu)


def checkpoint_bytes(graph: Graph, optimizer: OptimizerSpec, local_steps: int, outer_momentum: float) -> int:
    """Memory that a phone needs beside training while it writes a checkpoint."""
    communication = CommunicationSpec(local_steps=local_steps, outer_momentum=outer_momentum)
    return checkpoint_floats(optimizer, communication) * packing_of(graph).size * FLOAT
