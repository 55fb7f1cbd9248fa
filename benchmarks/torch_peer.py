# mypy: allow-subclassing-any, no-warn-return-any
"""Our graphs as PyTorch modules: the same layers and weights, in idiomatic PyTorch.

Run as a program, it is a contestant of `compute` and `layers` (see peers.py).

`TorchNet` builds modules from a graph, in channels_last (or NCHW) memory format; `Trainer` is a training step with
the fastest SGD implementation of PyTorch. Tensors here are NCHW, ours are NHWC: `to_torch` and `from_torch` convert
parameters and their gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.networks import Sample, network, peak_rss_mb, sample
from benchmarks.peers import CLOCKS, serve
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
    Layer,
    LocalResponseNorm,
    MaxPool,
    Node,
    Relu,
    Shape,
    as_pair,
)
from phone_agent.nn.packing import State

Array = NDArray[Any]
Masks = Callable[[Node, int], Array]  # (node, batch) -> factors in NHWC: 0 or 1 / (1 - rate)


class Sum(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Join(nn.Module):
    def forward(self, *branches: Tensor) -> Tensor:
        return torch.cat(branches, dim=1)


class Mask(nn.Module):
    """Dropout with a given mask, so that two programs can drop the same values."""

    def __init__(self, node: Node, masks: Masks) -> None:
        super().__init__()
        self.node, self.masks = node, masks

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.from_numpy(np.ascontiguousarray(_nchw(self.masks(self.node, x.shape[0])))).to(x.dtype)
        return x * mask.reshape(x.shape)


@dataclass(frozen=True)
class Call:
    """One module and its inputs; `last_use` lists the values that no later call reads."""

    name: str
    module: nn.Module
    inputs: tuple[int, ...]
    last_use: tuple[int, ...]


class TorchNet(nn.Module):
    """`dropout` is 'own' (random masks of PyTorch), 'off', or a function that returns the masks."""

    def __init__(self, graph: Graph, dropout: str | Masks = "own") -> None:
        super().__init__()
        readers = _readers(graph)
        self.calls: list[Call] = []
        for index, node in enumerate(graph.nodes):
            shapes = [graph.shape if feed < 0 else graph.nodes[feed].shape for feed in node.inputs]
            sole_reader = all(readers[feed] == [index] and feed >= 0 for feed in node.inputs)
            module = (
                _drop(node, dropout) if isinstance(node.layer, Dropout) else _module(node.layer, shapes, sole_reader)
            )
            self.add_module(_attribute(node.name), module)
            last = tuple(feed for feed in node.inputs if readers[feed][-1] == index)
            self.calls.append(Call(node.name, module, node.inputs, last))

    def forward(self, images: Tensor) -> Tensor:
        values = {-1: images}
        for index, call in enumerate(self.calls):
            values[index] = call.module(*(values[feed] for feed in call.inputs))
            for feed in call.last_use:
                values.pop(feed, None)
        return values[len(self.calls) - 1].flatten(1)


def torch_net(graph: Graph, state: State, dropout: str | Masks = "own", *, channels_last: bool = True) -> TorchNet:
    """A network with the values and statistics of `state`, in the same precision."""
    net = TorchNet(graph, dropout)
    net = net.to(dtype=torch.float64 if state.values.dtype == np.float64 else torch.float32)
    load(net, graph, state)
    return net.to(memory_format=torch.channels_last) if channels_last else net


def load(net: TorchNet, graph: Graph, state: State) -> None:
    """Copy our values and statistics into the modules."""
    values, statistics = state.packing.views(state.values), state.statistics_packing.views(state.statistics)
    shapes = _input_shapes(graph)
    with torch.no_grad():
        for call in net.calls:
            for name, tensor in [*call.module.named_parameters(), *call.module.named_buffers()]:
                ours = {**values, **statistics}.get(f"{call.name}.{name}")
                if ours is not None:
                    tensor.copy_(torch.from_numpy(np.ascontiguousarray(to_torch(ours, shapes[call.name]))))


def gradients(net: TorchNet, graph: Graph) -> dict[str, Array]:
    """Gradients by our parameter names, in our layout."""
    shapes = _input_shapes(graph)
    ours = {f"{node.name}.{parameter.name}": parameter for node in graph.nodes for parameter in node.parameters}
    by_name: dict[str, Array] = {}
    for call in net.calls:
        for name, parameter in call.module.named_parameters():
            if parameter.grad is not None:
                full = f"{call.name}.{name}"
                by_name[full] = from_torch(parameter.grad.numpy(), ours[full].shape, shapes[call.name])
    return by_name


def statistics(net: TorchNet) -> dict[str, Array]:
    """Running means and variances by our names."""
    return {
        f"{call.name}.{name}": buffer.numpy()
        for call in net.calls
        for name, buffer in call.module.named_buffers()
        if name.startswith("running")
    }


def to_torch(ours: Array, fed: Shape) -> Array:
    """Convert convolution weights (h, w, in, out), and dense weights whose input is an image in (h, w, c) order."""
    if ours.ndim == 4:
        return ours.transpose(3, 2, 0, 1)
    if ours.ndim == 2:
        return ours.reshape(*_as_image(fed), -1).transpose(3, 2, 0, 1).reshape(ours.shape[1], ours.shape[0])
    return ours


def from_torch(theirs: Array, shape: Shape, fed: Shape) -> Array:
    if len(shape) == 4:
        return theirs.transpose(2, 3, 1, 0)
    if len(shape) == 2:
        height, width, channels = _as_image(fed)
        return theirs.reshape(-1, channels, height, width).transpose(2, 3, 1, 0).reshape(shape)
    return theirs


def images_to_torch(images: Array, *, channels_last: bool = True) -> Tensor:
    """Convert NHWC images to an NCHW tensor."""
    tensor = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    return tensor.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


class Trainer:
    """A training step (forward, backward, update) with the faster of the two SGD implementations of PyTorch."""

    def __init__(self, net: TorchNet, rate: float = 0.01, momentum: float = 0.9, decay: float = 1e-4) -> None:
        self.net = net.train()
        self._criterion = nn.CrossEntropyLoss()
        self._sgd: Callable[[str], torch.optim.SGD] = lambda kind: torch.optim.SGD(
            net.parameters(), lr=rate, momentum=momentum, weight_decay=decay, **{kind: True}
        )
        self.kind = "fused"
        self.optimizer = self._sgd("fused")

    def choose(self, images: Tensor, labels: Tensor, rounds: int = 3) -> str:
        """Time both implementations on real gradients and use the faster one."""
        self._backward(images, labels)
        seconds = {kind: self._update_seconds(self._sgd(kind), rounds) for kind in ("foreach", "fused")}
        self.kind = min(seconds, key=lambda kind: seconds[kind])
        self.optimizer = self._sgd(self.kind)
        return self.kind

    def step(self, images: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(images, labels)
        self.optimizer.step()
        return loss

    def _backward(self, images: Tensor, labels: Tensor) -> float:
        loss = self._criterion(self.net(images), labels)
        loss.backward()
        return float(loss.detach())

    @staticmethod
    def _update_seconds(optimizer: torch.optim.SGD, rounds: int) -> float:
        optimizer.step()  # allocates the momentum buffers
        durations = []
        for _ in range(rounds):
            start = time.perf_counter()
            optimizer.step()
            durations.append(time.perf_counter() - start)
        return min(durations)


def _module(layer: Layer, shapes: list[Shape], sole_reader: bool) -> nn.Module:  # noqa: C901, PLR0911, FBT001 - one case per layer
    match layer:
        case Conv():
            return nn.Conv2d(
                shapes[0][2],
                layer.filters,
                as_pair(layer.kernel),
                layer.stride,
                as_pair(layer.padding),
                layer.dilation,
                layer.groups,
                bias=layer.bias,
            )
        case MaxPool():
            return nn.MaxPool2d(as_pair(layer.kernel), layer.stride, as_pair(layer.padding), ceil_mode=layer.ceil)
        case AvgPool():
            return nn.AvgPool2d(
                as_pair(layer.kernel),
                layer.stride,
                as_pair(layer.padding),
                ceil_mode=layer.ceil,
                count_include_pad=layer.count_padding,
            )
        case GlobalAvgPool():
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case BatchNorm():
            return nn.BatchNorm2d(shapes[0][-1], eps=layer.epsilon, momentum=layer.momentum)
        case Relu():
            return nn.ReLU6(inplace=sole_reader) if layer.six else nn.ReLU(inplace=sole_reader)
        case LocalResponseNorm():
            return nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k)
        case Add():
            return Sum()
        case Concat():
            return Join()
        case Dense():
            return _Dense(prod(shapes[0]), layer.units)
        case Dropout():
            raise AssertionError(layer)


class _Dense(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def _drop(node: Node, dropout: str | Masks) -> nn.Module:
    assert isinstance(node.layer, Dropout)
    if callable(dropout):
        return Mask(node, dropout)
    return nn.Dropout(node.layer.rate) if dropout == "own" else nn.Identity()


def _readers(graph: Graph) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {feed: [] for feed in range(-1, len(graph.nodes))}
    for index, node in enumerate(graph.nodes):
        for feed in node.inputs:
            readers[feed].append(index)
    return readers


def _input_shapes(graph: Graph) -> dict[str, Shape]:
    return {node.name: graph.shape if node.inputs[0] < 0 else graph.nodes[node.inputs[0]].shape for node in graph.nodes}


def _attribute(name: str) -> str:
    return name.replace(".", "/").replace("_", "__")


def _as_image(shape: Shape) -> tuple[int, int, int]:
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (1, 1, prod(shape))


def _nchw(values: Array) -> Array:
    return values.transpose(0, 3, 1, 2) if values.ndim == 4 else values


class Contestant:
    """Handles the requests of peers.py."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._images = self._labels = torch.empty(0)

    def open(
        self, model: str, batch: int, threads: int, *, layout: str = "channels_last", onednn: bool = True
    ) -> dict[str, Any]:
        """With `onednn` off, convolution is im2col and BLAS, as in a build without oneDNN and NNPACK."""
        self._prepare(threads, onednn=onednn)
        self._trainer = None
        graph = network(model)
        last = layout == "channels_last"
        self._trainer = Trainer(torch_net(graph, State(graph, seed=1), channels_last=last))
        self._load(sample(graph, batch), channels_last=last)
        return {"optimizer": self._trainer.choose(self._images, self._labels), "threads": torch.get_num_threads()}

    def steps(self, count: int, clock: str = "wall") -> dict[str, Any]:
        now = CLOCKS[clock]
        assert self._trainer is not None
        seconds, loss = [], 0.0
        for _ in range(count):
            start = now()
            loss = self._trainer.step(self._images, self._labels)
            seconds.append(now() - start)
        return {"seconds": seconds, "loss": loss, "peak_rss_mb": peak_rss_mb()}

    def open_layers(self, threads: int) -> dict[str, Any]:
        self._prepare(threads, onednn=True)
        return {}

    @staticmethod
    def layer(geometry: dict[str, int], direction: str, seconds: float, clock: str = "wall") -> dict[str, Any]:
        now = CLOCKS[clock]
        run = _direction(geometry, direction)
        run()
        durations: list[float] = []
        end = time.perf_counter() + seconds
        while len(durations) < 3 or time.perf_counter() < end:
            start = now()
            run()
            durations.append(now() - start)
        return {"best": min(durations)}

    def _load(self, made: Sample, *, channels_last: bool) -> None:
        self._images = images_to_torch(made.images, channels_last=channels_last)
        self._labels = torch.from_numpy(made.labels).long()

    @staticmethod
    def _prepare(threads: int, *, onednn: bool) -> None:
        torch.set_num_threads(threads)
        torch.backends.mkldnn.enabled = onednn
        if not onednn:
            torch.backends.nnpack.set_flags(False)


def _direction(g: dict[str, int], direction: str) -> Callable[[], object]:
    last = torch.channels_last
    if g["in_h"] == g["in_w"] == 1:
        return _dense_direction(g, direction)
    x = torch.randn(g["batch"], g["in_c"], g["in_h"], g["in_w"]).contiguous(memory_format=last)
    w = torch.randn(g["out_c"], g["in_c"] // g["groups"], g["kernel_h"], g["kernel_w"]).contiguous(memory_format=last)
    dy = torch.randn(g["batch"], g["out_c"], g["out_h"], g["out_w"]).contiguous(memory_format=last)
    window = ([g["stride"]] * 2, [g["pad_h"], g["pad_w"]], [g["dilation"]] * 2)
    if direction == "forward":
        return lambda: torch.conv2d(x, w, None, *window, groups=g["groups"])
    output_mask = [direction == "backward_data", direction == "backward_weights", False]
    backward = torch.ops.aten.convolution_backward
    rest = (False, [0, 0], g["groups"], output_mask)  # not transposed
    return lambda: backward(dy, x, w, None, *window, *rest)


def _dense_direction(g: dict[str, int], direction: str) -> Callable[[], object]:
    x, w = torch.randn(g["batch"], g["in_c"]), torch.randn(g["out_c"], g["in_c"])
    dy = torch.randn(g["batch"], g["out_c"])
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: nn.functional.linear(x, w),
        "backward_data": lambda: dy.mm(w),
        "backward_weights": lambda: dy.t().mm(x),
    }
    return calls[direction]


if __name__ == "__main__":
    contestant = Contestant()
    serve(
        {
            "open": contestant.open,
            "steps": contestant.steps,
            "open_layers": contestant.open_layers,
            "layer": contestant.layer,
        }
    )
