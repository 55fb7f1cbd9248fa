"""The whole plan for a graph, a batch size and some options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.core.library import CoreError
from phone_agent.core.thread_pool import workspace_bytes
from phone_agent.nn.graph import MAX_ELEMENTS, Graph, GraphError
from phone_agent.nn.plan import algorithms, recompute
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.arena import ArenaLayout, assign_offsets, compute_lifetimes
from phone_agent.nn.plan.emit import AddressMap, Emitter
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import LoweredGraph
from phone_agent.nn.plan.ops import Buffer, MemorySpace, OpSpec
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.schedule import Schedule, evaluation_schedule, training_schedule

DUMMY_ADDRESS = 1 << 20  # an address nobody looks behind: sizes can be asked for before there is memory


class TensorTooLargeError(GraphError):
    """A batch with which some tensor has more values than can be counted."""


@dataclass(frozen=True)
class Plan:
    network: LoweredGraph
    places: Addresses
    training: Schedule
    evaluation: Schedule
    layouts: tuple[ArenaLayout, ArenaLayout]
    workspace: int
    moments: int = 1

    @property
    def arena(self) -> int:
        return max(layout.bytes for layout in self.layouts)

    @property
    def offsets(self) -> dict[Buffer, int]:
        first, second = self.layouts
        return first.offsets | second.offsets


def make_plan(graph: Graph, batch: int, options: Options, arena_budget: int | None = None) -> Plan:
    """Under `arena_budget`, if given, as little as possible is computed twice; smaller than that, as much as helps."""
    if batch < 1:
        raise GraphError(f"a batch of {batch} images")
    if not 1 <= options.threads <= MAX_THREADS:
        raise CoreError(f"{options.threads} threads requested: the core supports 1 to {MAX_THREADS}")
    network = fuse(graph)
    _check_counts(network, batch)
    places = Addresses(graph, network, batch, options.threads, options.label_smoothing, half=options.half)
    choose = algorithms.algorithm_selector(options)
    dropped = recompute.choose_discarded(graph, batch, arena_budget, half=options.half)
    train, use = training_schedule(network, places, choose, dropped), evaluation_schedule(network, places, choose)
    piece = options.piece_bytes
    layouts = assign_offsets(compute_lifetimes(train.steps), piece), assign_offsets(compute_lifetimes(use.steps), piece)
    steps = (*train.steps, *use.steps)
    needed = options.workspace(steps, batch) if options.workspace else core_workspace_bytes(steps, options)
    return Plan(network, places, train, use, layouts, needed, options.moments)


def _check_counts(network: LoweredGraph, batch: int) -> None:
    for value in (network.image, *(work.y for work in network.works)):
        count = batch * value.storage.pixels * value.storage.channels
        if count > MAX_ELEMENTS:
            raise TensorTooLargeError(
                f"a batch of {batch} needs {count} values in {value.storage.name}; at most {MAX_ELEMENTS} are supported"
            )


def core_workspace_bytes(steps: Sequence[OpSpec], options: Options) -> int:
    emitter = Emitter(AddressMap(dict.fromkeys(MemorySpace, DUMMY_ADDRESS), {}))
    return workspace_bytes(options.threads, emitter.emit(steps), options.isa)
