"""Random graphs: every layer after every other, branches with several consumers, additions and concatenations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

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
    GraphBuilder,
    Layer,
    LocalResponseNorm,
    MaxPool,
    Relu,
)
from phone_agent.nn.packing import backward_order

SIDE = 5
CLASSES = 3


class _Drawing:
    """Feature maps of one size, which any layer may read. Unused outputs are concatenated in the end."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._net = GraphBuilder((SIDE, SIDE, draw(st.sampled_from((2, 3, 4)))))
        self._channels = [self._net._shape[2]]  # of the image, then of each node
        self._unread: list[int] = []
        self._count = 0

    def graph(self) -> Graph:
        for _ in range(self._draw(st.integers(1, 9))):
            self._layer()
        while len(self._unread) > 1:
            self._add(Concat(), *self._unread)
        if self._draw(st.booleans()):
            self._add(GlobalAvgPool(), self._unread[0])
        self._add(Dense(CLASSES), self._unread[0])
        if self._draw(st.booleans()):
            last: tuple[Layer, ...] = (Relu(), Dense(CLASSES))
            self._add(self._draw(st.sampled_from(last)), self._unread[0])
        return self._net.build()

    def _layer(self) -> None:
        x = self._some()
        channels = self._channels[x + 1]
        alike = [node for node, count in enumerate(self._channels, -1) if count == channels]
        choice = self._draw(st.sampled_from(("conv", "conv", "bn", "bn", "relu", "relu", "add", "concat", "other")))
        if choice == "add":
            self._add(Add(), x, self._draw(st.sampled_from(alike)))
        elif choice == "concat":
            self._add(Concat(), *[x, *(self._some() for _ in range(self._draw(st.integers(1, 2))))])
        else:
            self._add(self._simple(choice, channels), x)

    def _simple(self, choice: str, channels: int) -> Layer:
        if choice == "bn":
            return BatchNorm()
        if choice == "relu":
            return Relu(six=self._draw(st.booleans()))
        if choice == "conv":
            bias = self._draw(st.booleans())
            depthwise = Conv(channels, 3, padding=1, groups=channels, bias=bias)
            plain = Conv(self._draw(st.sampled_from((2, 4))), (3, 1), padding=(1, 0), bias=bias)
            return self._draw(st.sampled_from((plain, plain, Conv(4, 1, bias=bias), depthwise)))
        average = AvgPool(3, 1, padding=1, count_padding=self._draw(st.booleans()))
        others: tuple[Layer, ...] = (MaxPool(3, 1, padding=1), average, LocalResponseNorm(alpha=0.1), Dropout(0.4))
        return self._draw(st.sampled_from(others))

    def _some(self) -> int:
        """Mostly an unused output, so that graphs are deep."""
        fresh = bool(self._unread) and self._draw(st.integers(0, 3)) > 0
        return self._draw(st.sampled_from(self._unread if fresh else range(-1, len(self._channels) - 1)))

    def _add(self, layer: Layer, *inputs: int) -> None:
        node = self._net.add(f"{type(layer).__name__.lower()}{self._count}", layer, *inputs)
        self._count += 1
        self._channels.append(self._net._nodes[node].shape[-1])
        self._unread = [other for other in self._unread if other not in inputs] + [node]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    return _Drawing(draw).graph()


@st.composite
def frozen_graphs(draw: st.DrawFn) -> Graph:
    """Graphs with some frozen parameters; mostly none."""
    graph = draw(graphs())
    names = [name for name, _ in backward_order(graph)]
    learn = draw(st.one_of(st.just(set(names)), st.sets(st.sampled_from(names), min_size=1)))
    return replace(graph, frozen=frozenset(names) - learn)
