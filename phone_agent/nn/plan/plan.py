"""The whole plan for a graph, a batch size and some options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phone_agent.contract.choices import MAX_THREADS
from phone_agent.core.library import CoreError
from phone_agent.core.thread_pool import workspace_bytes
from phone_agent.nn.graph import MOST_VALUES, Graph, GraphError
from phone_agent.nn.plan import algorithms, recompute
from phone_agent.nn.plan.addresses import Places
from phone_agent.nn.plan.arena import Layout, lay_out, lifetimes
from phone_agent.nn.plan.emit import Addresses, Emitter
from phone_agent.nn.plan.fuse import fuse
from phone_agent.nn.plan.lowered_graph import Network
from phone_agent.nn.plan.ops import Buffer, Home, Step
from phone_agent.nn.plan.options import Options
from phone_agent.nn.plan.schedule import Schedule, evaluation, training

SOMEWHERE = 1 << 20  # an address nobody looks behind: sizes can be asked for before there is memory


class TooManyError(GraphError):
    """A batch with which some tensor has more values than can be counted."""


@dataclass(frozen=True)
class Plan:
    network: Network
    places: Places
    training: Schedule
    evaluation: Schedule
    layouts: tuple[Layout, Layout]
    workspace: int
    moments: int = 1

    @property
    def arena(self) -> int:
        return max(layout.bytes for layout in self.layouts)

    @property
    def offsets(self) -> dict[Buffer, int]:
        first, second = self.layouts
        return first.offsets | second.offsets


def make(graph: Graph, batch: int, options: Options, arena_budget: int | None = None) -> Plan:
    """Under `arena_budget`, if given, as little as possible is computed twice; smaller than that, as much as helps."""
    if batch < 1:
        raise GraphError(f"a batch of {batch} images")
    if not 1 <= options.threads <= MAX_THREADS:
        raise CoreError(f"{options.threads} threads requested: the core supports 1 to {MAX_THREADS}")
    network = fuse(graph)
    _check_counts(network, batch)
    places = Places(graph, network, batch, options.threads, options.label_smoothing, half=options.half)
    choose = algorithms.chooser(options)
    dropped = recompute.choose(graph, batch, arena_budget, half=options.half)
    train, use = training(network, places, choose, dropped), evaluation(network, places, choose)
    piece = options.piece_bytes
    layouts = lay_out(lifetimes(train.steps), piece), lay_out(lifetimes(use.steps), piece)
    steps = (*train.steps, *use.steps)
    needed = options.workspace(steps, batch) if options.workspace else core_workspace(steps, options)
    return Plan(network, places, train, use, layouts, needed, options.moments)


def _check_counts(network: Network, batch: int) -> None:
    for value in (network.image, *(work.y for work in network.works)):
        count = batch * value.storage.pixels * value.storage.channels
        if count > MOST_VALUES:
            raise TooManyError(
                f"a batch of {batch} needs {count} values at once in {value.storage.name}; at most {MOST_VALUES} can be"
            )


def core_workspace(steps: Sequence[Step], options: Options) -> int:
    emitter = Emitter(Addresses(dict.fromkeys(Home, SOMEWHERE), {}))
    return workspace_bytes(options.threads, emitter.emit(steps), options.isa)
