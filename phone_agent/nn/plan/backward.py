"""Gradients of everything that learns, last layer first; and of what lies between that and the loss.

A gradient belongs to a value as its readers see it. The first reader writes it, others add; the last one also applies
what comes first in the backward of the layer that made the value, if it can (see `sink` in core.h). Where a sum passes
a gradient on to both its terms they hold the same memory, until one of them wants to write.
"""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.core.ops import Act, DType, Kind, Pooling
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.algorithms import AlgorithmSelector
from phone_agent.nn.plan.buffers import Buffers
from phone_agent.nn.plan.forward import (
    ArgmaxBuffers,
    conv_flops,
    conv_geometry,
    conv_input,
    dropout_fields,
    lrn_fields,
    pool_geometry,
)
from phone_agent.nn.plan.lowered_graph import (
    AddOp,
    BatchNormOp,
    ConcatView,
    ConvOp,
    DropoutOp,
    LoweredGraph,
    LrnOp,
    Norm,
    Op,
    PoolOp,
    Value,
)
from phone_agent.nn.plan.ops import FLOAT, Buffer, Direction, Field, OpSpec, Pointer, SharedStruct, TensorView


@dataclass(eq=False)
class _Held:
    """Memory of a gradient, and how many values' gradients it is."""

    view: TensorView
    holders: int = 1


@dataclass(eq=False)
class _Gradient:
    held: _Held
    masked: bool = False  # the activation's derivative is in
    sums: SharedStruct | None = None  # what the normalisation's backward needs is gathered


class BackwardBuilder:
    """Adds its steps to `steps`. `argmaxes`: of max pools, as forward left them."""

    def __init__(
        self,
        network: LoweredGraph,
        places: Addresses,
        stores: Buffers,
        *,
        choose: AlgorithmSelector,
        argmaxes: ArgmaxBuffers,
        steps: list[OpSpec],
    ) -> None:
        self._places = places
        self._stores = stores
        self._choose = choose
        self._argmaxes = argmaxes
        self._steps = steps
        self._gradients: dict[Value, _Gradient] = {}
        self._awaited = {work.y: len(work.y.readers) for work in network.works}

    def start(self, scores: Value) -> TensorView:
        """Where the loss writes its gradient."""
        self._gradients[scores] = _Gradient(self._new(scores))
        return self._gradients[scores].held.view

    def add(self, work: Op) -> None:
        if not work.y.needs_gradient:
            return
        match work:
            case ConvOp():
                self._convolve(work)
            case BatchNormOp():
                self._pass_on(work.x, self._through_norm(work.y, work.norm))
            case AddOp():
                self._join(work)
            case PoolOp():
                self._pool(work)
            case LrnOp():
                self._response_norm(work)
            case DropoutOp():
                self._drop(work)
            case ConcatView():
                self._split(work)
        self._gradients.pop(work.y).held.holders -= 1

    # What each layer does

    def _convolve(self, work: ConvOp) -> None:
        dy = self._finished(work.y, work.name).view
        if work.learns:
            self._convolve_weights(work, dy)
        if work.x.needs_gradient:
            self._convolve_data(work, dy)

    def _convolve_weights(self, work: ConvOp, dy: TensorView) -> None:
        places = self._places
        kind = Kind.DEPTHWISE_BACKWARD_WEIGHTS if work.depthwise else Kind.CONV_BACKWARD_WEIGHTS
        shape = conv_geometry(work, places.batch)
        x = conv_input(self._stores.see(work.x), work, places.batch)
        fields: dict[str, Field] = {
            "g": shape,
            "x": places.source(work.x, x),
            "dy": dy.place,
            "dweights": places.gradient(work.weight),
            "dbias": None if work.bias is None else places.gradient(work.bias),
            "ld_dy": dy.ld,
            "algorithm": self._choose(kind, shape),
        }
        self._add(OpSpec(kind, work.name, Direction.BACKWARD, fields, conv_flops(shape), x.bytes + dy.bytes))

    def _convolve_data(self, work: ConvOp, dy: TensorView) -> None:
        places = self._places
        kind = Kind.DEPTHWISE_BACKWARD_DATA if work.depthwise else Kind.CONV_BACKWARD_DATA
        shape = conv_geometry(work, places.batch)
        sink, moved = self._sink(work.x, rows=places.batch if work.flat else None)
        fields: dict[str, Field] = {
            "g": shape,
            "dy": dy.place,
            "weights": places.value(work.weight),
            "dx": sink,
            "ld_dy": dy.ld,
            "algorithm": self._choose(kind, shape),
        }
        self._add(OpSpec(kind, work.name, Direction.BACKWARD, fields, conv_flops(shape), moved + dy.bytes))

    def _join(self, work: AddOp) -> None:
        held = self._finished(work.y, work.name)
        for value in work.inputs:
            self._pass_on(value, held)

    def _pool(self, work: PoolOp) -> None:
        dy = self._finished(work.y, work.name).view
        sink, moved = self._sink(work.x)
        fields: dict[str, Field] = {
            "g": pool_geometry(work, self._places.batch),
            "dy": dy.place,
            "argmax": Pointer(self._argmaxes[work]) if work.pooling == Pooling.MAX else None,
            "dx": sink,
            "ld_dy": dy.ld,
            "pooling": work.pooling,
            "count_padding": work.count_padding,
        }
        self._add(OpSpec(Kind.POOLING_BACKWARD, work.name, Direction.BACKWARD, fields, traffic=moved + dy.bytes))

    def _response_norm(self, work: LrnOp) -> None:
        dy = self._finished(work.y, work.name).view
        x = self._stores.see(work.x)
        sink, moved = self._sink(work.x)
        fields: dict[str, Field] = {"x": self._places.source(work.x, x), "dy": dy.place, "dx": sink, "ld_dy": dy.ld}
        fields |= lrn_fields(work, dy)
        self._add(OpSpec(Kind.LRN_BACKWARD, work.name, Direction.BACKWARD, fields, traffic=moved + x.bytes + dy.bytes))

    def _drop(self, work: DropoutOp) -> None:
        dy = self._finished(work.y, work.name).view
        sink, moved = self._sink(work.x)
        fields: dict[str, Field] = {"dy": dy.place, "dx": sink, "ld_dy": dy.ld}
        fields |= dropout_fields(work, dy, self._places)
        self._add(OpSpec(Kind.DROPOUT_BACKWARD, work.name, Direction.BACKWARD, fields, traffic=moved + dy.bytes))

    def _split(self, work: ConcatView) -> None:
        whole = self._gradients[work.y]
        if whole.held.holders > 1:
            self._own(work.y)
        for part in work.parts:
            if not part.needs_gradient:
                continue
            view = whole.held.view.slice(part.start, part.channels)
            self._awaited[part] -= 1
            self._gradients[part] = _Gradient(_Held(view), masked=whole.masked)

    # How gradients travel

    def _finished(self, value: Value, name: str) -> _Held:
        """The gradient of what the layer computes before its normalisation and activation."""
        gradient = self._gradients[value]
        if value.norm is not None:
            return self._through_norm(value, value.norm)
        if value.scales is None and value.act != Act.NONE and not gradient.masked:
            self._mask(value, gradient, name)
        return gradient.held

    def _through_norm(self, value: Value, norm: Norm) -> _Held:
        gradient, z = self._gradients[value], self._stores.see(value)
        dy = gradient.held.view
        held = gradient.held if gradient.held.holders == 1 else self._new(value)
        fields: dict[str, Field] = {
            "norm": gradient.sums or self._places.norm(norm),
            "z": z.place,
            "dy": dy.place,
            "dz": held.view.place,
            "rows": z.rows,
            "ld_z": z.ld,
            "ld_dy": dy.ld,
            "ld_dz": held.view.ld,
            "act": value.act,
            "reduced": gradient.sums is not None,
            "dtype": z.dtype,
        }
        traffic = z.bytes + 2 * dy.bytes + (0 if gradient.sums else z.bytes + dy.bytes)
        self._add(OpSpec(Kind.BATCH_NORM_BACKWARD, norm.name, Direction.BACKWARD, fields, traffic=traffic))
        self._hold(gradient, held)
        return held

    def _mask(self, value: Value, gradient: _Gradient, name: str) -> None:
        y, dy = self._stores.see(value), gradient.held.view
        held = gradient.held if gradient.held.holders == 1 else self._new(value)
        self._add_to(held.view, dy, name, y=y, act=value.act)
        self._hold(gradient, held)

    def _pass_on(self, value: Value, held: _Held) -> None:
        """The same gradient goes to this value: it holds on to that memory, or adds it to what it has."""
        if not value.needs_gradient:
            return
        self._awaited[value] -= 1
        if value not in self._gradients:
            held.holders += 1
            self._gradients[value] = _Gradient(held)
            return
        own = self._own(value)
        self._add_to(own.view, held.view, value.name, accumulate=1)

    def _sink(self, value: Value, rows: int | None = None) -> tuple[dict[str, Field], int]:
        """The core's `sink` for one more contribution to a value's gradient; and the bytes it moves."""
        first = value not in self._gradients
        if first:
            self._gradients[value] = _Gradient(self._new(value))
        self._awaited[value] -= 1
        gradient = self._gradients[value]
        view = self._own(value, contiguous=rows is not None).view
        fields: dict[str, Field] = {"accumulate": not first}
        moved = view.bytes * (1 if first else 2)
        y = None
        if not self._awaited[value]:
            y = self._what_comes_first(value, gradient, fields)
            moved += y.bytes if y else 0
        if rows is not None:
            view, y = view.flat(rows), y.flat(rows) if y else None
        fields |= {"data": view.place, "ld": view.ld}
        fields |= {"y": y.place, "ld_y": y.ld, "dtype": y.dtype} if y else {}
        return fields, moved

    def _what_comes_first(self, value: Value, gradient: _Gradient, fields: dict[str, Field]) -> TensorView | None:
        if value.norm is not None:
            gradient.sums = self._places.norm(value.norm)
            fields |= {"norm": gradient.sums, "act": value.act}
            return self._stores.see(value)
        if value.scales is None and value.act != Act.NONE:
            gradient.masked = True
            fields["act"] = value.act
            return self._stores.see(value)
        return None

    def _own(self, value: Value, *, contiguous: bool = False) -> _Held:
        """This value's gradient where only it is written."""
        gradient = self._gradients[value]
        held = gradient.held
        if held.holders == 1 and (held.view.contiguous or not contiguous):
            return held
        copy = self._new(value)
        self._add_to(copy.view, held.view, value.name)
        self._hold(gradient, copy)
        return copy

    def _add_to(
        self,
        target: TensorView,
        dy: TensorView,
        name: str,
        *,
        accumulate: int = 0,
        y: TensorView | None = None,
        act: Act = Act.NONE,
    ) -> None:
        fields: dict[str, Field] = {
            "dy": dy.place,
            "y": y.place if y else None,
            "target": target.place,
            "rows": dy.rows,
            "channels": dy.channels,
            "ld_dy": dy.ld,
            "ld_y": y.ld if y else 0,
            "ld_target": target.ld,
            "act": act,
            "accumulate": accumulate,
            "dtype": y.dtype if y else DType.FP32,
        }
        traffic = dy.bytes * (2 + accumulate) + (y.bytes if y else 0)
        self._add(OpSpec(Kind.ADD_BACKWARD, name, Direction.BACKWARD, fields, traffic=traffic))

    def _new(self, value: Value) -> _Held:
        rows = self._places.batch * value.pixels
        buffer = Buffer(f"{value.name} gradient", rows * value.channels * FLOAT)
        return _Held(TensorView(buffer, rows, value.channels, value.channels))

    @staticmethod
    def _hold(gradient: _Gradient, held: _Held) -> None:
        if gradient.held is not held:
            gradient.held.holders -= 1
            gradient.held = held

    def _add(self, step: OpSpec) -> None:
        self._steps.append(step)
