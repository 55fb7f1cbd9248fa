"""Reference backend: the numpy oracle that every other backend is tested against. See reference_layers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from phone_agent.backends import reference_layers as layers
from phone_agent.backends.reference_layers import Array
from phone_agent.contract.errors import BadRequestError
from phone_agent.nn import graph as nn
from phone_agent.nn.executable import Executable, GradientRequest, GradientsReady
from phone_agent.nn.packing import State, Tensors
from phone_agent.nn.plan.buckets import bucket_slices
from phone_agent.nn.plan.options import Options


class ReferenceBackend:
    def array(self, count: int, dtype: DTypeLike = np.float32) -> Array:
        return np.zeros(count, dtype)

    def compile(
        self,
        graph: nn.Graph,
        state: State,
        batch: int,  # noqa: ARG002 - supports any batch size
        options: Options | None = None,
        also: Sequence[int] = (),  # noqa: ARG002 - supports any batch size
    ) -> ReferenceExecutable:
        options = options or Options()
        if options.half:
            raise BadRequestError("the reference backend does not support fp16 activations; use another backend")
        return ReferenceExecutable(graph, state, options)


class _NodeState:
    """A node with its parameters, the gradients of the trainable ones, and what forward saves for backward."""

    def __init__(self, node: nn.Node, state: State) -> None:
        self.layer, self.inputs = node.layer, node.inputs
        slots, statistic_slots = state.packing.slots, state.statistics_packing.slots
        names = {parameter.name: slots[f"{node.name}.{parameter.name}"] for parameter in node.parameters}
        self.values: Tensors = {name: slot.view(state.values) for name, slot in names.items()}
        self.gradients: Tensors = {
            name: slot.view(state.gradients)
            for name, slot in names.items()
            if slot.offset < state.packing.trainable_size
        }
        self.running: Tensors = {
            each.name: statistic_slots[f"{node.name}.{each.name}"].view(state.statistics) for each in node.statistics
        }
        self.saved: Any = None
        self.accumulate = False

    def set_gradients(self, dx: Array, dweight: Array, dbias: Array) -> tuple[Array]:
        for name, gradient in (("weight", dweight), ("bias", dbias)):
            if name in self.gradients:
                self.gradients[name][...] = gradient + self.gradients[name] if self.accumulate else gradient
        return (dx,)


class ReferenceExecutable(Executable):
    """Evaluation runs `_forward` with training off; a training step runs it with training on, then `_backward`."""

    def __init__(self, graph: nn.Graph, state: State, options: Options) -> None:
        self._state, self._parts = state, bucket_slices(state.packing, options.bucket_bytes)
        self._smoothing = options.label_smoothing
        self._nodes = [_NodeState(node, state) for node in graph.nodes]
        self._first = next((index for index, node in enumerate(self._nodes) if node.gradients), len(self._nodes))

    def prepare(self, sizes: Collection[int]) -> None:
        """Nothing to do: any batch size is supported."""

    def forward(self, images: Array) -> Array:
        return self._forward_all(images, training=False, draw=0)[-2]

    def compute_gradients(self, request: GradientRequest) -> float:
        if request.need is not None:
            for part in reversed(self._parts):
                request.need(part.start, part.stop)
        for node in self._nodes:
            node.accumulate = request.accumulate
        outputs = self._forward_all(request.images, training=True, draw=request.draw)
        loss, softmax = layers.cross_entropy_forward(outputs[-2], request.labels, self._smoothing)
        dscores = layers.cross_entropy_backward(softmax, request.labels, request.weight, self._smoothing)
        self._backward_all(outputs, dscores, request.ready or (lambda *_: None))
        return loss

    def _forward_all(self, images: Array, *, training: bool, draw: int) -> list[Array]:
        """Outputs by node. The images come last, so that position -1 refers to them."""
        outputs: list[Array] = [*[np.empty(0)] * len(self._nodes), images]
        for position, node in enumerate(self._nodes):
            feeds = (outputs[feed] for feed in node.inputs)
            outputs[position] = self._forward(node, *feeds, training=training, draw=draw, salt=position)
        return outputs

    def _backward_all(self, outputs: list[Array], dscores: Array, ready: GradientsReady) -> None:
        dys: dict[int, Array] = {len(self._nodes) - 1: dscores}
        waiting = list(self._parts)
        done = 0
        for position in reversed(range(self._first, len(self._nodes))):
            node = self._nodes[position]
            dxs = self._backward(node, dys.pop(position), *(outputs[feed] for feed in node.inputs))
            for feed, dx in zip(node.inputs, dxs, strict=True):
                dys[feed] = dys[feed] + dx if feed in dys else dx  # several consumers: gradients add up
            done += sum(gradient.size for gradient in node.gradients.values())
            while waiting and waiting[0].stop <= done:
                part = waiting.pop(0)
                ready(part.start, part.stop)
        for part in waiting:  # frozen parameters
            ready(part.start, part.stop)

    def _forward(  # noqa: C901, PLR0911 - one case per layer
        self, node: _NodeState, x: Array, *more: Array, training: bool, draw: int, salt: int
    ) -> Array:
        match node.layer:
            case nn.Conv() as layer:
                return layers.conv_forward(layer, x, **node.values)
            case nn.MaxPool() as layer:
                y, node.saved = layers.maxpool_forward(layer, x)
                return y
            case nn.AvgPool() as layer:
                return layers.avgpool_forward(layer, x)
            case nn.GlobalAvgPool():
                return layers.global_avgpool_forward(x)
            case nn.BatchNorm() as layer if training:
                node.saved = layers.moments(x)
                layers.update_running_statistics(layer, node.saved, node.running)
                return layers.norm_forward(layer, x, **node.values, by=node.saved)
            case nn.BatchNorm() as layer:
                by = layers.Moments(node.running["running_mean"], node.running["running_var"], 0)
                return layers.norm_forward(layer, x, **node.values, by=by)
            case nn.Relu() as layer:
                return layers.relu_forward(layer, x)
            case nn.LocalResponseNorm() as layer:
                return layers.lrn_forward(layer, x)
            case nn.Dropout() as layer:
                node.saved = layers.dropout_scale(layer, x, draw, salt) if training else np.ones((), x.dtype)
                return layers.apply_dropout(x, node.saved)
            case nn.Dense():
                return layers.dense_forward(x, **node.values)
            case nn.Add():
                return x + more[0]
            case nn.Concat():
                return layers.concat_forward(x, *more)

    def _backward(  # noqa: C901, PLR0911 - one case per layer
        self, node: _NodeState, dy: Array, x: Array, *more: Array
    ) -> tuple[Array, ...]:
        match node.layer:
            case nn.Conv() as layer:
                return node.set_gradients(*layers.conv_backward(layer, dy, x, node.values["weight"]))
            case nn.MaxPool() as layer:
                return (layers.maxpool_backward(layer, dy, node.saved, x),)
            case nn.AvgPool() as layer:
                return (layers.avgpool_backward(layer, dy, x),)
            case nn.GlobalAvgPool():
                return (layers.global_avgpool_backward(dy, x),)
            case nn.BatchNorm() as layer:
                return node.set_gradients(*layers.norm_backward(layer, dy, x, node.values["weight"], node.saved))
            case nn.Relu() as layer:
                return (layers.relu_backward(layer, dy, x),)
            case nn.LocalResponseNorm() as layer:
                return (layers.lrn_backward(layer, dy, x),)
            case nn.Dropout():
                return (layers.apply_dropout(dy, node.saved),)
            case nn.Dense():
                return node.set_gradients(*layers.dense_backward(dy, x, node.values["weight"]))
            case nn.Add():
                return dy, dy
            case nn.Concat():
                return layers.concat_backward(dy, x, *more)
