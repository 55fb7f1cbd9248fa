"""Graph to network: what can be computed where something else is computed anyway, is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import cast

from phone_agent.core.ops import Act, Pooling
from phone_agent.nn.graph import (
    Add,
    AvgPool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    GlobalAvgPool,
    Graph,
    GraphError,
    LocalResponseNorm,
    MaxPool,
    Node,
    Relu,
    Shape,
    as_pair,
)
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

MAX_POOL_TAPS = 255  # of a max pool: which one won is kept in a byte
CACHE_LINE_FLOATS = 16  # floats in a cache line: vectors of channels start on one


@lru_cache(maxsize=8)
def fuse(graph: Graph) -> LoweredGraph:
    return _Fusion(graph).network()


@dataclass(frozen=True)
class _Tail:
    """A layer and what follows it without anybody reading in between: a normalisation, an activation."""

    positions: tuple[int, ...]
    norm: Node | None
    act: Act = Act.NONE


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self._nodes, self._frozen = graph.nodes, graph.frozen
        self._readers = _readers(graph)
        self._image = _value("image", graph.shape)
        self._values: dict[int, Value] = {-1: self._image}  # by node; a node fused into another has its value
        self._uses: dict[Value, int] = {self._image: len(self._readers[-1])}
        self._works: list[Op] = []
        self._norms: list[Norm] = []

    def network(self) -> LoweredGraph:
        for position, node in enumerate(self._nodes):
            if position not in self._values:
                self._add(position, node)
        scores = self._values[len(self._nodes) - 1]
        scores = self._contiguous(scores) if scores.pixels > 1 else self._unscaled(scores)
        for work in self._works:
            for value in work.inputs:
                value.readers.append(work)
            work.y.needs_gradient = self._learns(work) or any(value.needs_gradient for value in work.inputs)
        scales = _all_scales(self._works)
        return LoweredGraph(
            self._image, tuple(self._works), scores, tuple(self._norms), scales, _lay_out(scales, self._norms)
        )

    def _learns(self, work: Op) -> bool:
        norm = work.y.norm if isinstance(work, ConvOp | BatchNormOp) else None
        own = isinstance(work, ConvOp) and work.learns
        return own or (norm is not None and self._any_learns(f"{norm.name}.weight", f"{norm.name}.bias"))

    def _any_learns(self, *parameters: str | None) -> bool:
        return any(name is not None and name not in self._frozen for name in parameters)

    def _add(self, position: int, node: Node) -> None:  # noqa: C901 - one line a layer
        if isinstance(node.layer, Concat):
            if self._only_reader(position, Concat) is None:  # else it becomes part of a wider one
                self._side(position, node)
            return
        x = self._values[node.inputs[0]]
        match node.layer:
            case Conv() as layer:
                self._convolve(position, node, layer, x)
            case Dense() as layer:
                self._dense(position, node, layer, x)
            case BatchNorm():
                self._normalise(position, node, x)
            case Relu() as layer:
                self._join(_Tail((position,), None, _act(layer)), node, x, None)
            case Add():
                self._join(self._tail(position), node, x, self._values[node.inputs[1]])
            case MaxPool() | AvgPool() | GlobalAvgPool():
                self._pool(position, node, x)
            case LocalResponseNorm() as layer:
                self._make((position,), LrnOp(node.name, layer, x, _value(node.name, node.shape)))
            case Dropout() as layer:
                work = DropoutOp(node.name, layer.rate, position, x, _value(node.name, node.shape))
                work.y.within = Act.RELU if work.x.within != Act.NONE else Act.NONE
                self._make((position,), work)

    def _convolve(self, position: int, node: Node, layer: Conv, x: Value) -> None:
        y = _value(node.name, node.shape)
        tail = self._tail(position, norm=not layer.bias)
        if tail.norm is not None:
            self._attach(tail.norm, y)
        y.act = y.within = tail.act
        bias = f"{node.name}.bias" if layer.bias else None
        self._convolution(tail, ConvOp(node.name, layer, f"{node.name}.weight", bias, x, y))

    def _dense(self, position: int, node: Node, layer: Dense, x: Value) -> None:
        y, flat = _value(node.name, node.shape), x.pixels > 1
        tail = self._tail(position)
        y.act = y.within = tail.act
        x = self._contiguous(x) if flat else x
        weight, bias = f"{node.name}.weight", f"{node.name}.bias"
        self._convolution(tail, ConvOp(node.name, Conv(layer.units, 1), weight, bias, x, y, flat))

    def _convolution(self, tail: _Tail, work: ConvOp) -> None:
        work.learns = self._any_learns(work.weight, work.bias)
        self._make(tail.positions, work)

    def _normalise(self, position: int, node: Node, x: Value) -> None:
        x = self._unscaled(x)
        y = Value(node.name, x.height, x.width, x.channels, x.storage, x.start)
        tail = self._tail(position)
        norm = self._attach(node, y)
        y.act = y.within = tail.act
        self._make(tail.positions, BatchNormOp(node.name, norm, x, y))

    def _attach(self, node: Node, y: Value) -> Norm:
        y.scales = Affine(y.channels)
        y.norm = Norm(node.name, cast("BatchNorm", node.layer), y.channels, y.scales)
        self._norms.append(y.norm)
        return y.norm

    def _join(self, tail: _Tail, node: Node, a: Value, b: Value | None) -> None:
        y = _value(node.name, node.shape)
        y.act = y.within = tail.act
        self._make(tail.positions, AddOp(node.name, a, b, y))

    def _pool(self, position: int, node: Node, x: Value) -> None:
        y = _value(node.name, node.shape)
        y.within = x.within
        match node.layer:
            case MaxPool(kernel, stride, padding):
                if prod(as_pair(kernel)) > MAX_POOL_TAPS:
                    window = "x".join(map(str, as_pair(kernel)))
                    raise GraphError(
                        f"layer {node.name} (MaxPool): its {window} window has more than {MAX_POOL_TAPS} places"
                    )
                work = PoolOp(
                    node.name, Pooling.MAX, as_pair(kernel), stride, as_pair(padding), count_padding=False, x=x, y=y
                )
            case AvgPool(kernel, stride, padding, _, count):
                work = PoolOp(node.name, Pooling.AVERAGE, as_pair(kernel), stride, as_pair(padding), count, x, y)
            case _:
                work = PoolOp(node.name, Pooling.AVERAGE, (x.height, x.width), 1, (0, 0), count_padding=False, x=x, y=y)
        self._make((position,), work)

    def _side(self, position: int, node: Node) -> None:
        """One wide storage. Parts are written right into it, unless somebody else has a say in where they lie."""
        y = _value(node.name, node.shape)
        wanted = [self._values[feed] for feed in self._feeds(position)]
        act = self._pending(wanted)
        y.scales = None if act is None else Affine(y.channels)
        parts = [value if self._may_move(value) and _goes_with(value, act) else self._copy(value) for value in wanted]
        start = 0
        for part in parts:
            _move(part, y, start)
            start += part.channels
        y.act = _common({part.act for part in parts}) if act is None else act
        y.within = _common({part.within for part in parts})
        self._make((position,), ConcatView(node.name, tuple(parts), y))

    def _pending(self, parts: list[Value]) -> Act | None:
        """The activation readers shall apply to all these, after scales of their own; none if they cannot."""
        acts = {value.act for value in parts if value.scales and self._may_move(value)}
        act = acts.pop() if len(acts) == 1 else None
        return act if all(_unchanged_by(act, value) for value in parts) else None

    def _feeds(self, position: int) -> list[int]:
        """A concatenation of concatenations is one."""
        feeds: list[int] = []
        for feed in self._nodes[position].inputs:
            feeds += [feed] if feed in self._values else self._feeds(feed)
        return feeds

    def _may_move(self, value: Value) -> bool:
        return isinstance(value.maker, ConvOp | AddOp | PoolOp | LrnOp | DropoutOp) and self._uses[value] == 1

    def _copy(self, value: Value) -> Value:
        """As its readers see it, stored."""
        y = _value(f"{value.name} (stored)", (value.height, value.width, value.channels))
        y.within = value.within
        self._works.append(AddOp(y.name, value, None, y))
        y.maker, self._uses[y] = self._works[-1], 1
        y.storage.writers.append(self._works[-1])
        return y

    def _unscaled(self, value: Value) -> Value:
        return self._copy(value) if value.scales else value

    def _contiguous(self, value: Value) -> Value:
        return self._unscaled(value) if value.fills_its_storage else self._copy(value)

    def _make(self, positions: tuple[int, ...], work: Op) -> None:
        self._works.append(work)
        work.y.maker = work
        if not isinstance(work, ConcatView | BatchNormOp):
            work.y.storage.writers.append(work)
        self._uses[work.y] = len(self._readers[positions[-1]])
        for position in positions:
            self._values[position] = work.y

    def _tail(self, position: int, *, norm: bool = False) -> _Tail:
        positions, follower = [position], None
        if norm and (follower := self._only_reader(position, BatchNorm)) is not None:
            positions.append(follower)
        relu = self._only_reader(positions[-1], Relu)
        act = Act.NONE
        if relu is not None:
            positions.append(relu)
            act = _act(cast("Relu", self._nodes[relu].layer))
        return _Tail(tuple(positions), None if follower is None else self._nodes[follower], act)

    def _only_reader(self, position: int, layer: type) -> int | None:
        readers = self._readers[position]
        alone = len(readers) == 1 and readers[0] < len(self._nodes)
        return readers[0] if alone and isinstance(self._nodes[readers[0]].layer, layer) else None


def _readers(graph: Graph) -> dict[int, list[int]]:
    """By node, who reads it; the loss (one past the last node) reads the last."""
    if not graph.nodes:
        raise GraphError("a network without layers")
    if graph.unused_layers:
        raise GraphError(f"layer {graph.unused_layers[0]}: nothing reads its output")
    readers: dict[int, list[int]] = defaultdict(list)
    for position, node in enumerate(graph.nodes):
        for feed in node.inputs:
            readers[feed].append(position)
    readers[len(graph.nodes) - 1].append(len(graph.nodes))
    return readers


def _value(name: str, shape: Shape) -> Value:
    height, width, channels = shape if len(shape) == 3 else (1, 1, shape[0])
    return Value(name, height, width, channels, Storage(name, height * width, channels))


def _act(layer: Relu) -> Act:
    return Act.RELU6 if layer.six else Act.RELU


def _common(acts: set[Act]) -> Act:
    return acts.pop() if len(acts) == 1 else Act.NONE


def _unchanged_by(act: Act | None, value: Value) -> bool:
    return act in {None, Act.NONE, value.within} or (act, value.within) == (Act.RELU, Act.RELU6)


def _goes_with(value: Value, act: Act | None) -> bool:
    """Can it be read like the others, right where it was written?"""
    return value.scales is None or value.act == act


def _move(part: Value, whole: Value, start: int) -> None:
    whole.storage.writers += part.storage.writers
    part.storage, part.start = whole.storage, start
    if part.norm is not None and whole.scales is not None:
        part.scales, part.scales_start = whole.scales, start
        part.norm.scales, part.norm.start = whole.scales, start


def _all_scales(works: list[Op]) -> tuple[Affine, ...]:
    return tuple(dict.fromkeys(work.y.scales for work in works if work.y.scales is not None))


def _lay_out(scales: tuple[Affine, ...], norms: list[Norm]) -> int:
    """Where the vectors lie: each on a cache line of its own. Returns how many floats they take."""
    end = 0
    for some in scales:
        some.offset, end = end, end + 2 * pad_to_cache_line(some.channels)
    for norm in norms:
        norm.offset, end = end, end + 2 * pad_to_cache_line(norm.channels)
    return end


def pad_to_cache_line(channels: int) -> int:
    return -(-channels // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS
