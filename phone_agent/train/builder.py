"""From a run spec to a trainer that is ready for its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from phone_agent.backends import get_backend
from phone_agent.comm.autotune import SCHEDULED_ALGORITHMS, CollectiveConfig, DenseMessageSizes, autotune
from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.link_probe import probe_links
from phone_agent.comm.powersgd import PowerSgdMessageSizes
from phone_agent.comm.reducer import Reducer, StatefulReducer, make_reducer
from phone_agent.comm.world import World
from phone_agent.contract.choices import GPU_BACKENDS
from phone_agent.contract.schema import DeviceConfig, RunSpec
from phone_agent.contract.startup import StartupPhase
from phone_agent.data import Dataset, open_dataset
from phone_agent.data.prefetch import open_source
from phone_agent.data.sampling import Source
from phone_agent.device import affinity
from phone_agent.device.monitor import Monitor
from phone_agent.memckpt import client
from phone_agent.memckpt.memfd import is_anonymous
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State, packing_of
from phone_agent.nn.plan.buckets import trainable_bucket_slices
from phone_agent.nn.plan.memory_plan import MemoryPlan, estimate_compute_s
from phone_agent.nn.plan.options import Options
from phone_agent.train import core_selection, initial_state, schedules
from phone_agent.train.checkpoint import checkpoint_ranks
from phone_agent.train.checkpoint_schedule import CheckpointSchedule, newest_checkpoint_age_s
from phone_agent.train.device_config import config_for, mapped_buffers
from phone_agent.train.load_balance import LoadBalancer
from phone_agent.train.local_sgd import LocalSgd
from phone_agent.train.loop import ReportStep, StepUpdates, TrainingLoop, sizes
from phone_agent.train.memory_budget import (
    affordable_bytes,
    checkpoint_floats,
    memckpt_floats,
    plan_memory,
    state_floats,
)
from phone_agent.train.optimizers import Optimizer, build_optimizer
from phone_agent.train.overlap import Overlap
from phone_agent.train.rank_checks import own_rank
from phone_agent.train.resume import Recovery, open_checkpointer, resume
from phone_agent.train.timeline import Timeline

WHOLE_BUCKETS = 1 << 62  # bytes per chunk


@dataclass(frozen=True)
class Compute:
    """What computes gradients and weights on this phone."""

    device: DeviceConfig
    threads: int
    graph: Graph
    state: State
    optimizer: Optimizer
    executable: Executable
    dataset: Dataset
    source: Source
    capacity: int  # images that can be computed at a time
    memory: MemoryPlan | None  # None: the backend does not plan its memory


@dataclass(frozen=True)
class Communication:
    """What exchanges gradients with the other phones."""

    config: CollectiveConfig
    exact: Collective  # sums in full precision, whatever the wire format of gradients
    overlap: Overlap
    timeline: Timeline


@dataclass(frozen=True)
class Trainer:
    """One rank's part of a run."""

    compute: Compute
    communication: Communication
    recovery: Recovery
    loop: TrainingLoop
    load_balancer: LoadBalancer
    monitor: Monitor
    checkpoint_schedule: CheckpointSchedule

    def close(self) -> None:
        """To be called while no step is in progress."""
        self.monitor.close()
        self.communication.overlap.close()
        self.compute.source.close()


@dataclass(frozen=True)
class _MemoryPlanned:
    options: Options  # to compile with
    memory: MemoryPlan | None


@dataclass(frozen=True)
class _Learning:
    """How gradients become updates. `images`: size of the batch whose gradient is applied."""

    optimizer: Optimizer
    reducer: Reducer
    images: int


class TrainerBuilder:
    """`run` is the run's directory. `checkpointing`: commit every step to the in-memory checkpoint server.

    The order of construction matters: memory is planned before large buffers are allocated, buffers move to their
    final addresses before anything is compiled for them, and the communication thread starts before the compute
    threads lower their priority.
    """

    def __init__(  # noqa: PLR0917 - the run, the resources, and the callbacks
        self,
        run: Path,
        spec: RunSpec,
        threads: int,
        world: World,
        report: ReportStep,
        warn: Callable[[str], None],
        on_phase: Callable[[StartupPhase], None] = lambda _: None,
        *,
        checkpointing: bool = False,
    ) -> None:
        self._run, self._spec, self._threads, self._world = run, spec, threads, world
        self._report, self._warn, self._on_phase = report, warn, on_phase
        self._checkpoint_schedule = CheckpointSchedule(spec, newest_checkpoint_age_s(run))
        self._own = own_rank(spec, world)
        on_phase(StartupPhase.OPENING_DATA)
        batches = [rank.batch for rank in spec.ranks]
        self._dataset = open_dataset(spec.data, spec.seed, batches, self._own.rank, warn=warn)
        self._exact = make_collective("ring", world)
        self._graph = initial_state.build_graph(run, spec)
        on_phase(StartupPhase.MEASURING_LINKS)
        self._collective_config = _autotune(spec, world, self._graph)
        on_phase(StartupPhase.PLANNING)
        self._device = config_for(spec, self._own.phone)
        self._mapped = _mapped_buffers(self._device) if checkpointing else None
        # Evaluated once: later, a part of it is in use.
        self._affordable = affordable_bytes(client.allocated_bytes(run) if checkpointing else 0)

    def build(self) -> Trainer:
        own, spec, world, exact = self._own, self._spec, self._world, self._exact
        planned = self._plan_memory(self._options)
        self._on_phase(StartupPhase.LOADING_STATE)
        computing = get_backend(self._device.backend)
        state = initial_state.initial_state(self._run, spec, self._graph, own.rank, exact.allreduce)
        state.move(computing.array)
        timeline = Timeline()
        reducer = make_reducer(spec, world, state.packing, self._collective_config, timeline.note)
        reducer_buffers = reducer.persistent_buffers(state.gradients)
        checkpointer = None
        if self._mapped is not None:
            checkpointer = open_checkpointer(self._run, spec, state, reducer_buffers, self._mapped, world, self._warn)
        planned = self._select_cores(planned, state)
        memory = planned.memory
        capacity = memory.batch if memory else own.batch
        largest = min(capacity, spec.compute.micro_batch or capacity)
        balancer = LoadBalancer(spec, own.rank, largest)
        learning = self._learning(state, reducer)
        optimizer = learning.optimizer
        recovery = resume(
            self._run, spec, self._graph, state, optimizer, reducer_buffers, world, exact.allreduce, checkpointer
        )
        self._on_phase(StartupPhase.COMPILING)
        overlap = self._start_overlap(state, learning, recovery, timeline)
        monitor = Monitor()
        first = balancer.micro_batches(1)
        source = open_source(spec, own.rank, self._dataset, first, computing.array)
        others = sorted({*sizes(first)} - {capacity})
        executable = computing.compile(self._graph, state, capacity, planned.options, others)
        loop = TrainingLoop(
            executable=executable,
            source=source,
            overlap=overlap,
            assignment=balancer,
            global_batch=learning.images,
            gradients=state.gradients,
            overlapping=spec.communication.overlap,
            seed=spec.seed,
            rank=own.rank,
            condition=lambda: monitor.condition,
            checkpointer=recovery.checkpointer,
        )
        compute = Compute(
            device=self._device,
            threads=planned.options.threads,
            graph=self._graph,
            state=state,
            optimizer=optimizer,
            executable=executable,
            dataset=self._dataset,
            source=source,
            capacity=capacity,
            memory=memory,
        )
        communication = Communication(self._collective_config, exact, overlap, timeline)
        return Trainer(compute, communication, recovery, loop, balancer, monitor, self._checkpoint_schedule)

    @property
    def _options(self) -> Options:
        spec, device = self._spec, self._device
        communication = replace(spec.communication, wire=self._collective_config.wire)
        saves = self._own.rank in checkpoint_ranks([rank.switch for rank in spec.ranks])
        return Options(
            threads=self._threads,
            bucket_bytes=self._collective_config.bucket_bytes,
            gpu_share=device.gpu_fraction,
            tiles=tuple(sorted(device.tiles.items())),
            memory_bytes=spec.compute.memory_bytes or None,
            moments=state_floats(spec.optimizer, communication)
            + (checkpoint_floats(spec.optimizer, communication) if saves else 0)
            + (0 if self._mapped is None else memckpt_floats(spec.optimizer, communication, self._mapped)),
            label_smoothing=spec.optimizer.label_smoothing,
            half=spec.compute.activations == "fp16",
        )

    def _plan_memory(self, options: Options) -> _MemoryPlanned:
        """numpy (the reference backend) allocates as it runs and is not planned."""
        name = self._device.backend
        if name == "reference":
            return _MemoryPlanned(options, None)
        if name in GPU_BACKENDS:
            from phone_agent.backends.opencl.memory_estimate import options_for_backend

            options = options_for_backend(name, options, self._graph.shape)
        planned = plan_memory(self._graph, self._own.batch, options, self._affordable, self._spec.compute.micro_batch)
        return _MemoryPlanned(*planned)

    def _select_cores(self, planned: _MemoryPlanned, state: State) -> _MemoryPlanned:
        """Measures whether little cores help, unless the number of threads is given."""
        if planned.memory is None or self._device.backend != "cpu" or self._device.threads:
            return planned
        core_sets = affinity.core_sets()
        if len(core_sets) < 2:
            return planned
        batch, options = planned.memory.batch, planned.options
        threads = core_selection.select_core_set(core_sets, self._graph, state, batch, options).threads
        return self._plan_memory(replace(self._options, threads=threads))

    def _learning(self, state: State, reducer: StatefulReducer) -> _Learning:
        spec, own = self._spec, self._own
        optimizer = build_optimizer(spec.optimizer, state, self._device.backend)
        if spec.communication.local_steps == 1:
            return _Learning(optimizer, reducer, spec.global_batch)
        local = LocalSgd(optimizer, reducer, state, spec, self._checkpoint_schedule, own.batch / spec.global_batch)
        return _Learning(local, local, own.batch)

    def _start_overlap(self, state: State, learning: _Learning, recovery: Recovery, timeline: Timeline) -> Overlap:
        spec, config = self._spec, self._collective_config
        rate = partial(schedules.learning_rate, spec.optimizer, spec.schedule, steps=spec.steps)
        updates = StepUpdates(
            self._world, state, learning.reducer, learning.optimizer, rate, self._report, recovery.checkpointer
        )
        buckets = trainable_bucket_slices(state.packing, config.bucket_bytes)
        overlap = Overlap(buckets, _chunk_bytes(config), updates, timeline, first=recovery.step + 1)
        if self._world.size > 1 and config.algorithm in SCHEDULED_ALGORITHMS:
            # After the communication thread started, before the compute threads do. Not beside MPI's own
            # collectives, which spin instead of sleeping.
            affinity.lower_priority()
        return overlap


def _autotune(spec: RunSpec, world: World, graph: Graph) -> CollectiveConfig:
    """The same on all ranks: the expected compute time is that of a phone's mean part of the batch."""
    requested, switches = spec.communication, [rank.switch for rank in spec.ranks]
    mean_batch = -(-spec.global_batch // world.size)
    compute_s = estimate_compute_s(graph, mean_batch) if requested.overlap else None
    packing = packing_of(graph)
    is_powersgd = requested.wire == "powersgd"
    messages = PowerSgdMessageSizes(packing) if is_powersgd else DenseMessageSizes(packing.trainable_size)
    return autotune(requested, probe_links(world, switches), switches, messages, compute_s)


def _mapped_buffers(device: DeviceConfig) -> frozenset[str]:
    """None if the checkpoint server's memory is a file: every step would wear the flash."""
    return mapped_buffers(device) if is_anonymous() else frozenset()


def _chunk_bytes(config: CollectiveConfig) -> int:
    """Chunkwise reduction and PowerSGD need whole parameters; otherwise a bucket can be split anywhere."""
    whole = config.algorithm == "chunkwise" or config.wire == "powersgd"
    return WHOLE_BUCKETS if whole else config.bucket_bytes
