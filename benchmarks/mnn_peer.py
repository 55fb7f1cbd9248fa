# mypy: allow-subclassing-any, no-warn-return-any
"""MNN as a contestant of `compute` (see peers.py): the same layers, trained with the MNN Python package.

Supports chains of convolution, normalization and ReLU that end in global pooling and a dense layer: MobileNet-v1.
"""

from __future__ import annotations

from typing import Any

import MNN.expr as F  # noqa: N812 - as its own examples do
import numpy as np
from MNN import nn, optim

from benchmarks.networks import network, peak_rss_mb, sample
from benchmarks.peers import CLOCKS, serve
from phone_agent.nn.graph import BatchNorm, Conv, Dense, GlobalAvgPool, Graph, Relu, as_pair


class Net(nn.Module):
    """MNN finds parameters through attributes, so every layer becomes an attribute."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []
        channels = graph.shape[2]
        for index, node in enumerate(graph.nodes):
            name = f"layer{index}"
            match node.layer:
                case Conv() as conv:
                    setattr(self, name, _conv(conv, channels, depthwise=conv.groups == channels > 1))
                    self.steps.append(("call", name))
                case BatchNorm() as norm:
                    setattr(self, name, nn.batch_norm(channels, epsilon=norm.epsilon))
                    self.steps.append(("call", name))
                case Relu():
                    self.steps.append(("relu", name))
                case GlobalAvgPool():
                    self.steps.append(("mean", name))
                case Dense(units=units):
                    setattr(self, name, nn.linear(channels, units))
                    self.steps.append(("call", name))
                case other:
                    raise ValueError(f"{type(other).__name__} is not supported for MNN")
            channels = node.shape[-1]

    def forward(self, x: Any) -> Any:
        keep_dims = True
        for kind, name in self.steps:
            if kind == "call":
                x = getattr(self, name)(x)
            elif kind == "relu":
                x = F.relu(x)
            else:
                x = F.reshape(F.convert(F.reduce_mean(x, [2, 3], keep_dims), F.NCHW), [0, -1])
        return F.softmax(x, 1)


def _conv(conv: Conv, channels: int, *, depthwise: bool) -> Any:
    return nn.conv(
        channels,
        conv.filters,
        list(as_pair(conv.kernel)),
        stride=[conv.stride] * 2,
        padding=list(as_pair(conv.padding)),
        depthwise=depthwise,
        bias=conv.bias,
        padding_mode=F.Padding_Mode.CAFFE,  # other modes ignore `padding`
    )


class Contestant:
    def open(self, model: str, batch: int, threads: int) -> dict[str, Any]:
        F.lazy_eval(True)  # noqa: FBT003
        F.set_thread_number(threads)
        graph = network(model)
        made = sample(graph, batch)
        self._net = Net(graph)
        self._net.train(True)  # noqa: FBT003
        self._optimizer = optim.SGD(self._net, 0.01, 0.9, 1e-4)
        self._images = np.ascontiguousarray(made.images.transpose(0, 3, 1, 2))
        self._labels = made.labels
        self._classes = graph.classes
        return {}

    def steps(self, count: int, clock: str = "wall") -> dict[str, Any]:
        now = CLOCKS[clock]
        seconds, loss = [], 0.0
        for _ in range(count):
            start = now()
            loss = self._step()
            seconds.append(now() - start)
        return {"seconds": seconds, "loss": loss, "peak_rss_mb": peak_rss_mb()}

    def _step(self) -> float:
        shape = list(self._images.shape)
        images = F.convert(F.const(self._images, shape, F.NCHW), F.NC4HW4)
        labels = F.const(self._labels, [shape[0]], F.NCHW, F.int)
        one_hot = F.one_hot(labels, self._classes, 1.0, 0.0)
        loss = nn.loss.cross_entropy(self._net.forward(images), one_hot)
        value = float(loss.read())
        self._optimizer.step(loss)
        return value


if __name__ == "__main__":
    contestant = Contestant()
    serve({"open": contestant.open, "steps": contestant.steps})
