"""Schedules: all ops of a training step, or of an evaluation, in order."""

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
    ops: tuple[OpSpec, ...]
    scores: TensorView
    backward_start: int  # the first op after the loss
    rematerialized: Mapping[Buffer, Storage] = field(default_factory=dict)  # buffers of recomputed storages


def training_schedule(
    lowered: LoweredGraph, addresses: Addresses, select: AlgorithmSelector, discarded: Collection[Storage] = ()
) -> Schedule:
    """`discarded`: storages that are not kept for backward but recomputed there."""
    specs: list[OpSpec] = []
    buffers = Buffers(lowered, addresses)
    forward = ForwardBuilder(addresses, buffers.view, select)
    for op in lowered.ops:
        buffers.allocate(op.y.storage)
        _append(specs, forward.train(op))
    scores = buffers.view(lowered.scores)
    backward = BackwardBuilder(lowered, addresses, buffers, select=select, argmaxes=forward.argmaxes, specs=specs)
    specs.append(_loss(lowered, addresses, scores, backward.start(lowered.scores)))
    backward_start = len(specs)

    def recompute(op: Op) -> None:
        _append(specs, forward.recompute(op))

    with buffers.discard(discarded, recompute):
        for op in reversed(lowered.ops):
            backward.add(op)
    return Schedule(tuple(specs), scores, backward_start, buffers.rematerialized)


def evaluation_schedule(lowered: LoweredGraph, addresses: Addresses, select: AlgorithmSelector) -> Schedule:
    specs = [
        OpSpec(Kind.BATCH_NORM_FOLD, norm.name, Direction.FORWARD, {"norm": addresses.norm(norm, sums=False)})
        for norm in lowered.norms
    ]
    buffers = Buffers(lowered, addresses)
    forward = ForwardBuilder(addresses, buffers.view, select)
    for op in lowered.ops:
        buffers.allocate(op.y.storage)
        _append(specs, forward.evaluate(op))
    return Schedule(tuple(specs), buffers.view(lowered.scores), len(specs))


def _loss(lowered: LoweredGraph, addresses: Addresses, scores: TensorView, dscores: TensorView) -> OpSpec:
    classes = lowered.scores.pixels * lowered.scores.channels
    scores, dscores = (_one_row_per_image(view, addresses.batch, classes) for view in (scores, dscores))
    fields: dict[str, Field] = {
        "logits": scores.pointer,
        "labels": addresses.step_io(LABELS),
        "weight": addresses.step_io(WEIGHT),
        "dlogits": dscores.pointer,
        "loss": addresses.step_io(LOSS),
        "batch": addresses.batch,
        "classes": classes,
        "ld_logits": scores.ld,
        "ld_dlogits": dscores.ld,
        "smoothing": addresses.smoothing,
    }
    return OpSpec(Kind.SOFTMAX_LOSS, "loss", Direction.FORWARD, fields, traffic=2 * scores.bytes)


def _one_row_per_image(view: TensorView, batch: int, classes: int) -> TensorView:
    return view if view.channels == classes else view.reshape(batch)


def _append(specs: list[OpSpec], spec: OpSpec | None) -> None:
    if spec is not None:
        specs.append(spec)
