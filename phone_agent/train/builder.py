"""From a run's specification to a loop that is ready to train."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from phone_agent.backends import get_backend
from phone_agent.comm.autotune import CollectiveConfig, TuneRequest, autotune
from phone_agent.comm.collective import Collective
from phone_agent.comm.factory import make_collective
from phone_agent.comm.link_probe import probe_links
from phone_agent.comm.message_sizes import DenseMessageSizes
from phone_agent.comm.powersgd import PowerSgdMessageSizes
from phone_agent.comm.reducer import Reducer, StatefulReducer, make_reducer
from phone_agent.comm.world import World
from phone_agent.contract.choices import GPU_BACKENDS
from phone_agent.contract.schema import DeviceConfig, RankSpec, RunSpec
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
from phone_agent.nn.plan.memory_plan import MemoryPlan
from phone_agent.nn.plan.options import Options
from phone_agent.train import core_selection, initial_state, schedules
from phone_agent.train.checkpoint import savers
from phone_agent.train.cost_estimate import computing_s
from phone_agent.train.device_config import config_for, living
from phone_agent.train.load_balance import Sharing
from phone_agent.train.local_sgd import LocalSgd
from phone_agent.train.loop import Loop, Updates, sizes
from phone_agent.train.memory_budget import affordable_bytes, held, moments, plan_memory, saved
from phone_agent.train.optimizers import Optimizer, build_optimizer
from phone_agent.train.overlap import Overlap
from phone_agent.train.progress import RankStep
from phone_agent.train.rank_checks import own_rank
from phone_agent.train.resume import Resumed, open_kept, resume
from phone_agent.train.timeline import Timeline

NEVER = 1 << 62
NAPPING = frozenset({"ring", "hierarchical"})  # MPI's own spin while they wait: computing must not give way to that
Tell = Callable[[int, RankStep], None]  # a step's number, and how it went here
Planned = tuple[Options, MemoryPlan | None]  # how to compile, and the memory that takes; None: not planned


@dataclass(frozen=True)
class Training:
    """A rank's part of a run. `exact` sums in full precision, whatever the gradients travel as; `at_once` is how many
    images are computed together at most."""

    dataset: Dataset
    source: Source
    graph: Graph
    state: State
    executable: Executable
    optimizer: Optimizer
    overlap: Overlap
    loop: Loop
    sharing: Sharing
    monitor: Monitor
    resumed: Resumed
    at_once: int
    exact: Collective
    timeline: Timeline
    choice: CollectiveConfig
    threads: int
    memory: MemoryPlan | None  # None: not planned
    device_config: DeviceConfig

    def close(self) -> None:
        """Once no step is under way."""
        self.monitor.close()
        self.overlap.close()
        self.source.close()


def build(
    directory: Path,
    spec: RunSpec,
    threads: int,
    world: World,
    tell: Tell,
    *,
    warn: Callable[[str], None],
    keep: bool = False,
) -> Training:
    """`directory` is the run's; `keep`: commit every step to what outlives this process."""
    own = own_rank(spec, world)
    dataset = open_dataset(spec.data, spec.seed, [rank.batch for rank in spec.ranks], own.rank, tell=warn)
    exact = make_collective("ring", world)
    graph = initial_state.build_graph(directory, spec)
    choice = _choose(spec, world, graph)
    config = config_for(spec, own.phone)
    lives = _lives(config) if keep else None
    affordable = affordable_bytes(client.allocated_bytes(directory) if keep else 0)
    chosen = replace(spec, communication=replace(spec.communication, wire=choice.wire))
    plan = partial(_planned, graph, own, chosen, lives, affordable)
    plans = plan(_options(threads, choice, config))
    computing = get_backend(config.backend)
    state = initial_state.initial_state(directory, spec, graph, own.rank, exact.allreduce)
    state.move(computing.array)
    timeline = Timeline()
    reduce = make_reducer(spec, world, state.packing, choice, timeline.note)
    summing = reduce.persistent_buffers(state.gradients)
    kept = None if lives is None else open_kept(directory, spec, state, summing, lives, world, warn)
    options, memory = _with_the_best_core_set(plans, plan, graph, state, config)
    at_once = memory.batch if memory else min(own.batch, spec.compute.micro_batch or own.batch)
    sharing = Sharing(spec, own.rank, at_once)
    parts = sharing.parts(1)
    learning = _learning(spec, own, state, reduce, config)
    resumed = resume(directory, spec, graph, state, learning.optimizer, summing, world, exact.allreduce, kept)
    overlap = _overlap(spec, world, state, choice, learning, resumed, tell, timeline)
    monitor = Monitor()
    source = open_source(spec, own.rank, dataset, parts, computing.array)
    executable = computing.compile(graph, state, at_once, options, sorted({*sizes(parts)} - {at_once}))
    loop = Loop(
        executable,
        source,
        overlap,
        sharing,
        learning.images,
        state.gradients,
        spec.communication.overlap,
        spec.seed,
        own.rank,
        lambda: monitor.condition,
        resumed.keep,
    )
    return Training(
        dataset=dataset,
        source=source,
        graph=graph,
        state=state,
        executable=executable,
        optimizer=learning.optimizer,
        overlap=overlap,
        loop=loop,
        sharing=sharing,
        monitor=monitor,
        resumed=resumed,
        at_once=at_once,
        exact=exact,
        timeline=timeline,
        choice=choice,
        threads=options.threads,
        memory=memory,
        device_config=config,
    )


def _lives(config: DeviceConfig) -> frozenset[str]:
    """In the keeper's memory: where that is a file, every step would wear the flash."""
    return living(config.backend) if is_anonymous() else frozenset()


@dataclass(frozen=True)
class _Learning:
    """How gradients become steps. `images`: of the batch whose gradient is stepped along."""

    optimizer: Optimizer
    reducer: Reducer
    images: int


def _learning(spec: RunSpec, own: RankSpec, state: State, reduce: StatefulReducer, config: DeviceConfig) -> _Learning:
    optimizer = build_optimizer(spec.optimizer, state, config.backend)
    if spec.communication.local_steps == 1:
        return _Learning(optimizer, reduce, spec.global_batch)
    alone = LocalSgd(optimizer, reduce, state, spec, own.batch / spec.global_batch)
    return _Learning(alone, alone, own.batch)


def _overlap(  # noqa: PLR0917 - a run's parts, as they are built
    spec: RunSpec,
    world: World,
    state: State,
    choice: CollectiveConfig,
    learning: _Learning,
    resumed: Resumed,
    tell: Tell,
    timeline: Timeline,
) -> Overlap:
    rate = partial(schedules.rate, spec.optimizer, spec.schedule, steps=spec.steps)
    updates = Updates(world, state, learning.reducer, learning.optimizer, rate, tell, resumed.keep)
    buckets = trainable_bucket_slices(state.packing, choice.bucket_bytes)
    overlap = Overlap(buckets, _piece_bytes(choice), updates, timeline, first=resumed.step + 1)
    if world.size > 1 and choice.algorithm in NAPPING:
        affinity.lower_priority()  # once the communication thread is there, before those that compute are
    return overlap


def _options(threads: int, choice: CollectiveConfig, config: DeviceConfig) -> Options:
    tiles = tuple(sorted(config.tiles.items()))
    return Options(threads=threads, bucket_bytes=choice.bucket_bytes, gpu_share=config.gpu_fraction, tiles=tiles)


def _with_the_best_core_set(
    plans: Planned, plan: Callable[[Options], Planned], graph: Graph, state: State, config: DeviceConfig
) -> Planned:
    """Where little cores might help, and nobody said how many threads."""
    options, memory = plans
    if memory and config.backend == "cpu" and not config.threads and len(core_sets := affinity.core_sets()) > 1:
        threads = core_selection.choose(core_sets, graph, state, memory.batch, options).threads
        return plan(replace(options, threads=threads))
    return plans


def _choose(spec: RunSpec, world: World, graph: Graph) -> CollectiveConfig:
    """The same on all ranks: what is expected to be computed beside it is a phone's mean share of the batch."""
    switches = [rank.switch for rank in spec.ranks]
    asked = spec.communication
    wanted = TuneRequest(asked.algorithm, asked.wire, asked.bucket_bytes, asked.group_size)
    compute_s = computing_s(graph, -(-spec.global_batch // world.size)) if asked.overlap else None
    packing = packing_of(graph)
    load = PowerSgdMessageSizes(packing) if asked.wire == "powersgd" else DenseMessageSizes(packing.trainable_size)
    return autotune(wanted, probe_links(world, switches), switches, load, compute_s)


def _piece_bytes(choice: CollectiveConfig) -> int:
    """Factors and single layers are whole parameters; all else can be cut anywhere."""
    return NEVER if choice.algorithm == "chunkwise" or choice.wire == "powersgd" else choice.bucket_bytes


def _planned(  # noqa: PLR0917 - what for, and within what
    graph: Graph,
    own: RankSpec,
    spec: RunSpec,
    lives: Collection[str] | None,
    affordable: int | None,
    options: Options,
) -> Planned:
    """numpy takes what it takes. `lives`: in the keeper's memory; None: nothing is kept there."""
    rules, alone = spec.optimizer, (spec.communication.local_steps, spec.communication.outer_momentum)
    saves = own.rank in savers([rank.switch for rank in spec.ranks])
    options = replace(
        options,
        memory_bytes=spec.compute.memory_bytes or None,
        moments=moments(rules, spec.communication.wire, *alone)
        + (saved(rules, *alone) if saves else 0)
        + (0 if lives is None else held(rules, spec.communication.wire, *alone, lives)),
        label_smoothing=spec.optimizer.label_smoothing,
        half=spec.compute.activations == "fp16",
    )
    computing = config_for(spec, own.phone).backend
    if computing == "reference":
        return options, None
    if computing in GPU_BACKENDS:
        from phone_agent.backends.opencl.memory_estimate import options_for_backend

        options = options_for_backend(computing, options, graph.shape)
    return plan_memory(graph, own.batch, options, affordable, spec.compute.micro_batch)
