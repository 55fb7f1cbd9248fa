"""All steps of a training step, or of an evaluation, in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from phone_agent.core.ops import Kind
from phone_agent.nn.plan.addresses import LABELS, LOSS, WEIGHT, Places
from phone_agent.nn.plan.algorithms import Choose
from phone_agent.nn.plan.backward import Backward
from phone_agent.nn.plan.buffers import Stores
from phone_agent.nn.plan.forward import Forward
from phone_agent.nn.plan.lowered_graph import Network, Storage, Work
from phone_agent.nn.plan.ops import Buffer, Direction, Field, Step, View


@dataclass(frozen=True)
class Schedule:
    steps: tuple[Step, ...]
    scores: View
    backward: int  # the first step after the loss
    back: Mapping[Buffer, Storage] = field(default_factory=dict)  # what was dropped, and made again


def training(network: Network, places: Places, choose: Choose, dropped: Collection[Storage] = ()) -> Schedule:
    """`dropped`: what is not kept for backward, but computed again there."""
    steps: list[Step] = []
    stores = Stores(network, places)
    forward = Forward(places, stores.see, choose)
    for work in network.works:
        stores.make(work.y.storage)
        _append(steps, forward.train(work))
    scores = stores.see(network.scores)
    backward = Backward(network, places, stores, choose=choose, argmaxes=forward.argmaxes, steps=steps)
    steps.append(_loss(network, places, scores, backward.start(network.scores)))
    start = len(steps)

    def again(work: Work) -> None:
        _append(steps, forward.again(work))

    with stores.dropping(dropped, again):
        for work in reversed(network.works):
            backward.add(work)
    return Schedule(tuple(steps), scores, start, stores.back)


def evaluation(network: Network, places: Places, choose: Choose) -> Schedule:
    steps = [
        Step(Kind.BATCH_NORM_FOLD, norm.name, Direction.FORWARD, {"norm": places.norm(norm, sums=False)})
        for norm in network.norms
    ]
    stores = Stores(network, places)
    forward = Forward(places, stores.see, choose)
    for work in network.works:
        stores.make(work.y.storage)
        _append(steps, forward.use(work))
    return Schedule(tuple(steps), stores.see(network.scores), len(steps))


def _loss(network: Network, places: Places, scores: View, dscores: View) -> Step:
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
    return Step(Kind.SOFTMAX_LOSS, "loss", Direction.FORWARD, fields, traffic=2 * scores.bytes)


def _rows(view: View, batch: int, classes: int) -> View:
    return view if view.channels == classes else view.flat(batch)


def _append(steps: list[Step], step: Step | None) -> None:
    if step is not None:
        steps.append(step)
