"""Operator fusion: lowers a graph, and fuses batch normalizations and activations into the ops before them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import cast

from phone_agent.core.ops import Act, Pooling
from phone_agent.nn import graph as nn
from phone_agent.nn.plan.lowered_graph import (
    AddOp,
    Affine,
    BatchNormOp,
    ConcatView,
    ConvOp,
    DropoutOp,
    LoweredGraph,
    LrnOp,
    Norm,
    Op,
    PoolOp,
    Storage,
    Value,
)

MAX_POOL_TAPS = 255  # of a max pool: the argmax is stored in a byte
CACHE_LINE_FLOATS = 16  # per-channel vectors start on a cache line


@lru_cache(maxsize=8)
def fuse(graph: nn.Graph) -> LoweredGraph:
    return _Fusion(graph).lower()


@dataclass(frozen=True)
class _Tail:
    """A layer and what can be fused into it: a batch normalization and an activation that are its only consumers."""

    positions: tuple[int, ...]
    norm: nn.Node | None
    act: Act = Act.NONE


class _Fusion:
    def __init__(self, graph: nn.Graph) -> None:
        self._nodes, self._frozen = graph.nodes, graph.frozen
        self._consumers = _consumers(graph)
        self._image = _value("image", graph.shape)
        self._values: dict[int, Value] = {-1: self._image}  # by node; fused nodes share one value
        self._uses: dict[Value, int] = {self._image: len(self._consumers[-1])}
        self._ops: list[Op] = []
        self._norms: list[Norm] = []

    def lower(self) -> LoweredGraph:
        for position, node in enumerate(self._nodes):
            if position not in self._values:
                self._lower_node(position, node)
        scores = self._values[len(self._nodes) - 1]
        scores = self._contiguous(scores) if scores.pixels > 1 else self._unscaled(scores)
        for op in self._ops:
            for value in op.inputs:
                value.consumers.append(op)
            op.y.needs_gradient = self._is_trainable(op) or any(value.needs_gradient for value in op.inputs)
        affines = _all_affines(self._ops)
        return LoweredGraph(
            self._image,
            tuple(self._ops),
            scores,
            tuple(self._norms),
            affines,
            _assign_vector_offsets(affines, self._norms),
        )

    def _is_trainable(self, op: Op) -> bool:
        norm = op.y.norm if isinstance(op, ConvOp | BatchNormOp) else None
        own = isinstance(op, ConvOp) and op.trainable
        return own or (norm is not None and self._any_trainable(f"{norm.name}.weight", f"{norm.name}.bias"))

    def _any_trainable(self, *parameters: str | None) -> bool:
        return any(name is not None and name not in self._frozen for name in parameters)

    def _lower_node(self, position: int, node: nn.Node) -> None:  # noqa: C901 - one case per layer
        if isinstance(node.layer, nn.Concat):
            if self._only_consumer(position, nn.Concat) is None:  # else it is merged into that one
                self._concat(position, node)
            return
        x = self._values[node.inputs[0]]
        match node.layer:
            case nn.Conv() as layer:
                self._conv(position, node, layer, x)
            case nn.Dense() as layer:
                self._dense(position, node, layer, x)
            case nn.BatchNorm():
                self._batch_norm(position, node, x)
            case nn.Relu() as layer:
                self._add(_Tail((position,), None, _act(layer)), node, x, None)
            case nn.Add():
                self._add(self._find_tail(position), node, x, self._values[node.inputs[1]])
            case nn.MaxPool() | nn.AvgPool() | nn.GlobalAvgPool():
                self._pool(position, node, x)
            case nn.LocalResponseNorm() as layer:
                self._append((position,), LrnOp(node.name, layer, x, _value(node.name, node.shape)))
            case nn.Dropout() as layer:
                op = DropoutOp(node.name, layer.rate, position, x, _value(node.name, node.shape))
                op.y.clamped_by = Act.RELU if op.x.clamped_by != Act.NONE else Act.NONE
                self._append((position,), op)

    def _conv(self, position: int, node: nn.Node, layer: nn.Conv, x: Value) -> None:
        y = _value(node.name, node.shape)
        tail = self._find_tail(position, norm=not layer.bias)
        if tail.norm is not None:
            self._attach_norm(tail.norm, y)
        y.act = y.clamped_by = tail.act
        bias = f"{node.name}.bias" if layer.bias else None
        self._append_conv(tail, ConvOp(node.name, layer, f"{node.name}.weight", bias, x, y))

    def _dense(self, position: int, node: nn.Node, layer: nn.Dense, x: Value) -> None:
        y, flatten = _value(node.name, node.shape), x.pixels > 1
        tail = self._find_tail(position)
        y.act = y.clamped_by = tail.act
        x = self._contiguous(x) if flatten else x
        weight, bias = f"{node.name}.weight", f"{node.name}.bias"
        self._append_conv(tail, ConvOp(node.name, nn.Conv(layer.units, 1), weight, bias, x, y, flatten))

    def _append_conv(self, tail: _Tail, op: ConvOp) -> None:
        op.trainable = self._any_trainable(op.weight, op.bias)
        self._append(tail.positions, op)

    def _batch_norm(self, position: int, node: nn.Node, x: Value) -> None:
        x = self._unscaled(x)
        y = Value(node.name, x.height, x.width, x.channels, x.storage, x.start)
        tail = self._find_tail(position)
        norm = self._attach_norm(node, y)
        y.act = y.clamped_by = tail.act
        self._append(tail.positions, BatchNormOp(node.name, norm, x, y))

    def _attach_norm(self, node: nn.Node, y: Value) -> Norm:
        y.affine = Affine(y.channels)
        y.norm = Norm(node.name, cast("nn.BatchNorm", node.layer), y.channels, y.affine)
        self._norms.append(y.norm)
        return y.norm

    def _add(self, tail: _Tail, node: nn.Node, a: Value, b: Value | None) -> None:
        y = _value(node.name, node.shape)
        y.act = y.clamped_by = tail.act
        self._append(tail.positions, AddOp(node.name, a, b, y))

    def _pool(self, position: int, node: nn.Node, x: Value) -> None:
        y = _value(node.name, node.shape)
        y.clamped_by = x.clamped_by
        match node.layer:
            case nn.MaxPool(kernel, stride, padding):
                if prod(nn.as_pair(kernel)) > MAX_POOL_TAPS:
                    window = "x".join(map(str, nn.as_pair(kernel)))
                    raise nn.GraphError(
                        f"layer {node.name} (MaxPool): the {window} window has more than {MAX_POOL_TAPS} taps"
                    )
                op = PoolOp(
                    node.name,
                    Pooling.MAX,
                    nn.as_pair(kernel),
                    stride,
                    nn.as_pair(padding),
                    count_padding=False,
                    x=x,
                    y=y,
                )
            case nn.AvgPool(kernel, stride, padding, _, count):
                op = PoolOp(node.name, Pooling.AVERAGE, nn.as_pair(kernel), stride, nn.as_pair(padding), count, x, y)
            case _:
                op = PoolOp(node.name, Pooling.AVERAGE, (x.height, x.width), 1, (0, 0), count_padding=False, x=x, y=y)
        self._append((position,), op)

    def _concat(self, position: int, node: nn.Node) -> None:
        """A view: parts are written directly into one wide storage, unless other ops also read them."""
        y = _value(node.name, node.shape)
        values = [self._values[feed] for feed in self._inputs(position)]
        act = self._deferred_act(values)
        y.affine = None if act is None else Affine(y.channels)
        parts = [
            value if self._may_move(value) and _is_compatible(value, act) else self._copy(value) for value in values
        ]
        start = 0
        for part in parts:
            _move(part, y, start)
            start += part.channels
        y.act = _common_act({part.act for part in parts}) if act is None else act
        y.clamped_by = _common_act({part.clamped_by for part in parts})
        self._append((position,), ConcatView(node.name, tuple(parts), y))

    def _deferred_act(self, parts: list[Value]) -> Act | None:
        """The activation that consumers apply to all parts, after their affine. None if there is no such activation."""
        acts = {value.act for value in parts if value.affine and self._may_move(value)}
        act = acts.pop() if len(acts) == 1 else None
        return act if all(_is_unchanged_by(act, value) for value in parts) else None

    def _inputs(self, position: int) -> list[int]:
        """Nested concatenations are flattened into one."""
        feeds: list[int] = []
        for feed in self._nodes[position].inputs:
            feeds += [feed] if feed in self._values else self._inputs(feed)
        return feeds

    def _may_move(self, value: Value) -> bool:
        return isinstance(value.producer, ConvOp | AddOp | PoolOp | LrnOp | DropoutOp) and self._uses[value] == 1

    def _copy(self, value: Value) -> Value:
        """Store the value as its consumers read it."""
        y = _value(f"{value.name} (stored)", (value.height, value.width, value.channels))
        y.clamped_by = value.clamped_by
        self._ops.append(AddOp(y.name, value, None, y))
        y.producer, self._uses[y] = self._ops[-1], 1
        y.storage.writers.append(self._ops[-1])
        return y

    def _unscaled(self, value: Value) -> Value:
        return self._copy(value) if value.affine else value

    def _contiguous(self, value: Value) -> Value:
        return self._unscaled(value) if value.fills_storage else self._copy(value)

    def _append(self, positions: tuple[int, ...], op: Op) -> None:
        self._ops.append(op)
        op.y.producer = op
        if not isinstance(op, ConcatView | BatchNormOp):
            op.y.storage.writers.append(op)
        self._uses[op.y] = len(self._consumers[positions[-1]])
        for position in positions:
            self._values[position] = op.y

    def _find_tail(self, position: int, *, norm: bool = False) -> _Tail:
        positions, follower = [position], None
        if norm and (follower := self._only_consumer(position, nn.BatchNorm)) is not None:
            positions.append(follower)
        relu = self._only_consumer(positions[-1], nn.Relu)
        act = Act.NONE
        if relu is not None:
            positions.append(relu)
            act = _act(cast("nn.Relu", self._nodes[relu].layer))
        return _Tail(tuple(positions), None if follower is None else self._nodes[follower], act)

    def _only_consumer(self, position: int, layer: type) -> int | None:
        consumers = self._consumers[position]
        alone = len(consumers) == 1 and consumers[0] < len(self._nodes)
        return consumers[0] if alone and isinstance(self._nodes[consumers[0]].layer, layer) else None


def _consumers(graph: nn.Graph) -> dict[int, list[int]]:
    """The consumers of each node. The loss (one past the last node) consumes the last."""
    if not graph.nodes:
        raise nn.GraphError("the network has no layers")
    if graph.unused_layers:
        raise nn.GraphError(f"layer {graph.unused_layers[0]}: its output is not used")
    consumers: dict[int, list[int]] = defaultdict(list)
    for position, node in enumerate(graph.nodes):
        for feed in node.inputs:
            consumers[feed].append(position)
    consumers[len(graph.nodes) - 1].append(len(graph.nodes))
    return consumers


def _value(name: str, shape: nn.Shape) -> Value:
    height, width, channels = shape if len(shape) == 3 else (1, 1, shape[0])
    return Value(name, height, width, channels, Storage(name, height * width, channels))


def _act(layer: nn.Relu) -> Act:
    return Act.RELU6 if layer.six else Act.RELU


def _common_act(acts: set[Act]) -> Act:
    return acts.pop() if len(acts) == 1 else Act.NONE


def _is_unchanged_by(act: Act | None, value: Value) -> bool:
    """Whether the activation would leave the value as it is."""
    return act in {None, Act.NONE, value.clamped_by} or (act, value.clamped_by) == (Act.RELU, Act.RELU6)


def _is_compatible(value: Value, act: Act | None) -> bool:
    """Whether consumers can read it like the other parts, without a copy."""
    return value.affine is None or value.act == act


def _move(part: Value, whole: Value, start: int) -> None:
    whole.storage.writers += part.storage.writers
    part.storage, part.start = whole.storage, start
    if part.norm is not None and whole.affine is not None:
        part.affine, part.affine_start = whole.affine, start
        part.norm.affine, part.norm.start = whole.affine, start


def _all_affines(ops: list[Op]) -> tuple[Affine, ...]:
    return tuple(dict.fromkeys(op.y.affine for op in ops if op.y.affine is not None))


def _assign_vector_offsets(affines: tuple[Affine, ...], norms: list[Norm]) -> int:
    """Assign each vector an offset on its own cache line. Returns the total number of floats."""
    end = 0
    for affine in affines:
        affine.offset, end = end, end + 2 * pad_to_cache_line(affine.channels)
    for norm in norms:
        norm.offset, end = end, end + 2 * pad_to_cache_line(norm.channels)
    return end


def pad_to_cache_line(channels: int) -> int:
    return -(-channels // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS
