"""All steps of a training step, or of an evaluation, in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from phone_agent.core.ops import Kind
from phone_agent.nn.plan.addresses import LABELS, LOSS, WEIGHT, Addresses
from phone_agent.nn.plan.algorithms import AlgorithmSelector
from phone_agent.nn.plan.backward import BackwardBuilder
from phone_agent.nn.plan.buffers import Buffers
from phone_agent.nn.plan.forward import ForwardBuilder
from phone_agent.nn.plan.lowered_graph import LoweredGraph, Op, Storage
from phone_agent.nn.plan.ops import Buffer, Direction, Field, OpSpec, TensorView


@dataclass(frozen=True)
class Schedule:
    steps: tuple[OpSpec, ...]
    scores: TensorView
    backward: int  # the first step after the loss
    back: Mapping[Buffer, Storage] = field(default_factory=dict)  # what was dropped, and made again


def training_schedule(
    network: LoweredGraph, places: Addresses, choose: AlgorithmSelector, dropped: Collection[Storage] = ()
) -> Schedule:
    """`dropped`: what is not kept for backward, but computed again there."""
    steps: list[OpSpec] = []
    stores = Buffers(network, places)
    forward = ForwardBuilder(places, stores.see, choose)
    for work in network.works:
        stores.make(work.y.storage)
        _append(steps, forward.train(work))
    scores = stores.see(network.scores)
    backward = BackwardBuilder(network, places, stores, choose=choose, argmaxes=forward.argmaxes, steps=steps)
    steps.append(_loss(network, places, scores, backward.start(network.scores)))
    start = len(steps)

    def again(work: Op) -> None:
        _append(steps, forward.again(work))

    with stores.dropping(dropped, again):
        for work in reversed(network.works):
            backward.add(work)
    return Schedule(tuple(steps), scores, start, stores.back)


def evaluation_schedule(network: LoweredGraph, places: Addresses, choose: AlgorithmSelector) -> Schedule:
    steps = [
        OpSpec(Kind.BATCH_NORM_FOLD, norm.name, Direction.FORWARD, {"norm": places.norm(norm, sums=False)})
        for norm in network.norms
    ]
    stores = Buffers(network, places)
    forward = ForwardBuilder(places, stores.see, choose)
    for work in network.works:
        stores.make(work.y.storage)
        _append(steps, forward.use(work))
    return Schedule(tuple(steps), stores.see(network.scores), len(steps))


def _loss(network: LoweredGraph, places: Addresses, scores: TensorView, dscores: TensorView) -> OpSpec:
    classes = network.scores.pixels * network.scores.channels
    scores, dscores = (_rows(view, places.batch, classes) for view in (scores, dscores))
    fields: dict[str, Field] = {
        "logits": scores.place,
        "labels": places.cell(LABELS),
        "weight": places.cell(WEIGHT),
        "dlogits": dscores.place,
        "loss": places.cell(LOSS),
        "batch": places.batch,
        "classes": classes,
        "ld_logits": scores.ld,
        "ld_dlogits": dscores.ld,
        "smoothing": places.smoothing,
    }
    return OpSpec(Kind.SOFTMAX_LOSS, "loss", Direction.FORWARD, fields, traffic=2 * scores.bytes)


def _rows(view: TensorView, batch: int, classes: int) -> TensorView:
    return view if view.channels == classes else view.flat(batch)


def _append(steps: list[OpSpec], step: OpSpec | None) -> None:
    if step is not None:
        steps.append(step)
