"""Backward ops: gradients of everything trainable, last layer first, and of the values between it and the loss.

A gradient belongs to a value as its consumers read it. The first consumer writes it, the others accumulate. The last
also applies the first part of the backward of the producing layer, if it can (operator fusion: FusedGradient in
core.ops). Where an addition passes its gradient on to both inputs, they share one buffer until one of them is written
(copy-on-write).
"""

from __future__ import annotations

from dataclasses import dataclass

from phone_agent.core.ops import Act, DType, Kind, Pooling
from phone_agent.nn.plan.addresses import Addresses
from phone_agent.nn.plan.algorithms import AlgorithmSelector
from phone_agent.nn.plan.buffers import Buffers
from phone_agent.nn.plan.forward import (
    ArgmaxBuffers,
    Fields,
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
from phone_agent.nn.plan.ops import FLOAT, Buffer, Direction, OpSpec, Pointer, SharedStruct, TensorView


@dataclass(eq=False)
class _GradientBuffer:
    """Memory of a gradient, and how many values share it."""

    view: TensorView
    refcount: int = 1


@dataclass(eq=False)
class _Gradient:
    buffer: _GradientBuffer
    masked: bool = False  # the derivative of the activation is applied
    sums: SharedStruct | None = None  # the sums that the backward of the batch normalization needs are computed


class BackwardBuilder:
    """Appends its ops to `specs`. `argmaxes`: of max pools, written by forward."""

    def __init__(
        self,
        lowered: LoweredGraph,
        addresses: Addresses,
        buffers: Buffers,
        *,
        select: AlgorithmSelector,
        argmaxes: ArgmaxBuffers,
        specs: list[OpSpec],
    ) -> None:
        self._addresses = addresses
        self._buffers = buffers
        self._select = select
        self._argmaxes = argmaxes
        self._specs = specs
        self._gradients: dict[Value, _Gradient] = {}
        self._pending = {op.y: len(op.y.consumers) for op in lowered.ops}  # contributions yet to come

    def start(self, scores: Value) -> TensorView:
        """Where the loss writes its gradient."""
        self._gradients[scores] = _Gradient(self._allocate(scores))
        return self._gradients[scores].buffer.view

    def add(self, op: Op) -> None:
        if not op.y.needs_gradient:
            return
        match op:
            case ConvOp():
                self._conv(op)
            case BatchNormOp():
                self._propagate(op.x, self._norm_backward(op.y, op.norm))
            case AddOp():
                self._add(op)
            case PoolOp():
                self._pool(op)
            case LrnOp():
                self._lrn(op)
            case DropoutOp():
                self._dropout(op)
            case ConcatView():
                self._concat(op)
        self._gradients.pop(op.y).buffer.refcount -= 1

    # Backward of each op

    def _conv(self, op: ConvOp) -> None:
        dy = self._pre_activation_gradient(op.y, op.name).view
        if op.trainable:
            self._conv_weights(op, dy)
        if op.x.needs_gradient:
            self._conv_data(op, dy)

    def _conv_weights(self, op: ConvOp, dy: TensorView) -> None:
        addresses = self._addresses
        kind = Kind.DEPTHWISE_BACKWARD_WEIGHTS if op.depthwise else Kind.CONV_BACKWARD_WEIGHTS
        shape = conv_geometry(op, addresses.batch)
        x = conv_input(self._buffers.view(op.x), op, addresses.batch)
        fields: Fields = {
            "g": shape,
            "x": addresses.fused_input(op.x, x),
            "dy": dy.pointer,
            "dweights": addresses.gradient(op.weight),
            "dbias": None if op.bias is None else addresses.gradient(op.bias),
            "ld_dy": dy.ld,
            "algorithm": self._select(kind, shape),
        }
        self._specs.append(OpSpec(kind, op.name, Direction.BACKWARD, fields, conv_flops(shape), x.bytes + dy.bytes))

    def _conv_data(self, op: ConvOp, dy: TensorView) -> None:
        addresses = self._addresses
        kind = Kind.DEPTHWISE_BACKWARD_DATA if op.depthwise else Kind.CONV_BACKWARD_DATA
        shape = conv_geometry(op, addresses.batch)
        fused, moved = self._fused_gradient(op.x, rows=addresses.batch if op.flatten else None)
        fields: Fields = {
            "g": shape,
            "dy": dy.pointer,
            "weights": addresses.parameter(op.weight),
            "dx": fused,
            "ld_dy": dy.ld,
            "algorithm": self._select(kind, shape),
        }
        self._specs.append(OpSpec(kind, op.name, Direction.BACKWARD, fields, conv_flops(shape), moved + dy.bytes))

    def _add(self, op: AddOp) -> None:
        buffer = self._pre_activation_gradient(op.y, op.name)
        for value in op.inputs:
            self._propagate(value, buffer)

    def _pool(self, op: PoolOp) -> None:
        fields: Fields = {
            "g": pool_geometry(op, self._addresses.batch),
            "argmax": Pointer(self._argmaxes[op]) if op.pooling == Pooling.MAX else None,
            "pooling": op.pooling,
            "count_padding": op.count_padding,
        }
        self._one_input(Kind.POOLING_BACKWARD, op, self._pre_activation_gradient(op.y, op.name).view, fields)

    def _lrn(self, op: LrnOp) -> None:
        dy, x = self._pre_activation_gradient(op.y, op.name).view, self._buffers.view(op.x)
        fields = lrn_fields(op, dy) | {"x": self._addresses.fused_input(op.x, x)}
        self._one_input(Kind.LRN_BACKWARD, op, dy, fields, x.bytes)

    def _dropout(self, op: DropoutOp) -> None:
        dy = self._pre_activation_gradient(op.y, op.name).view
        self._one_input(Kind.DROPOUT_BACKWARD, op, dy, dropout_fields(op, dy, self._addresses))

    def _one_input(
        self, kind: Kind, op: PoolOp | LrnOp | DropoutOp, dy: TensorView, fields: Fields, read_bytes: int = 0
    ) -> None:
        fused, moved = self._fused_gradient(op.x)
        fields |= {"dy": dy.pointer, "dx": fused, "ld_dy": dy.ld}
        traffic = moved + read_bytes + dy.bytes
        self._specs.append(OpSpec(kind, op.name, Direction.BACKWARD, fields, traffic=traffic))

    def _concat(self, op: ConcatView) -> None:
        whole = self._gradients[op.y]
        if whole.buffer.refcount > 1:
            self._make_exclusive(op.y)
        for part in op.parts:
            if not part.needs_gradient:
                continue
            view = whole.buffer.view.slice(part.start, part.channels)
            self._pending[part] -= 1
            self._gradients[part] = _Gradient(_GradientBuffer(view), masked=whole.masked)

    # Propagation of gradients

    def _pre_activation_gradient(self, value: Value, name: str) -> _GradientBuffer:
        """The gradient of what the layer computes before its fused batch normalization and activation."""
        gradient = self._gradients[value]
        if value.norm is not None:
            return self._norm_backward(value, value.norm)
        if value.affine is None and value.act != Act.NONE and not gradient.masked:
            self._activation_backward(value, gradient, name)
        return gradient.buffer

    def _norm_backward(self, value: Value, norm: Norm) -> _GradientBuffer:
        gradient, z = self._gradients[value], self._buffers.view(value)
        dy = gradient.buffer.view
        buffer = gradient.buffer if gradient.buffer.refcount == 1 else self._allocate(value)
        fields: Fields = {
            "norm": gradient.sums or self._addresses.norm(norm),
            "z": z.pointer,
            "dy": dy.pointer,
            "dz": buffer.view.pointer,
            "rows": z.rows,
            "ld_z": z.ld,
            "ld_dy": dy.ld,
            "ld_dz": buffer.view.ld,
            "act": value.act,
            "reduced": gradient.sums is not None,
            "dtype": z.dtype,
        }
        traffic = z.bytes + 2 * dy.bytes + (0 if gradient.sums else z.bytes + dy.bytes)
        self._specs.append(OpSpec(Kind.BATCH_NORM_BACKWARD, norm.name, Direction.BACKWARD, fields, traffic=traffic))
        self._replace_buffer(gradient, buffer)
        return buffer

    def _activation_backward(self, value: Value, gradient: _Gradient, name: str) -> None:
        y, dy = self._buffers.view(value), gradient.buffer.view
        buffer = gradient.buffer if gradient.buffer.refcount == 1 else self._allocate(value)
        self._add_gradient(buffer.view, dy, name, y=y, act=value.act)
        self._replace_buffer(gradient, buffer)

    def _propagate(self, value: Value, buffer: _GradientBuffer) -> None:
        """Pass the same gradient on to this value: it shares the buffer, or adds it to what it already has."""
        if not value.needs_gradient:
            return
        self._pending[value] -= 1
        if value not in self._gradients:
            buffer.refcount += 1
            self._gradients[value] = _Gradient(buffer)
            return
        own = self._make_exclusive(value)
        self._add_gradient(own.view, buffer.view, value.name, accumulate=1)

    def _fused_gradient(self, value: Value, rows: int | None = None) -> tuple[Fields, int]:
        """The core struct `FusedGradient` for one more contribution to a gradient, and the bytes it moves."""
        first = value not in self._gradients
        if first:
            self._gradients[value] = _Gradient(self._allocate(value))
        self._pending[value] -= 1
        gradient = self._gradients[value]
        view = self._make_exclusive(value, contiguous=rows is not None).view
        fields: Fields = {"accumulate": not first}
        moved = view.bytes * (1 if first else 2)
        y = None
        if not self._pending[value]:
            y = self._fuse_epilogue(value, gradient, fields)
            moved += y.bytes if y else 0
        if rows is not None:
            view, y = view.reshape(rows), y.reshape(rows) if y else None
        fields |= {"data": view.pointer, "ld": view.ld}
        fields |= {"y": y.pointer, "ld_y": y.ld, "dtype": y.dtype} if y else {}
        return fields, moved

    def _fuse_epilogue(self, value: Value, gradient: _Gradient, fields: Fields) -> TensorView | None:
        """Operator fusion: the last contribution also applies the activation derivative or computes the norm sums.

        Returns the forward value that this needs.
        """
        if value.norm is not None:
            gradient.sums = self._addresses.norm(value.norm)
            fields |= {"norm": gradient.sums, "act": value.act}
            return self._buffers.view(value)
        if value.affine is None and value.act != Act.NONE:
            gradient.masked = True
            fields["act"] = value.act
            return self._buffers.view(value)
        return None

    def _make_exclusive(self, value: Value, *, contiguous: bool = False) -> _GradientBuffer:
        """Copy-on-write: the gradient of this value in a buffer that no other value shares."""
        gradient = self._gradients[value]
        buffer = gradient.buffer
        if buffer.refcount == 1 and (buffer.view.contiguous or not contiguous):
            return buffer
        copy = self._allocate(value)
        self._add_gradient(copy.view, buffer.view, value.name)
        self._replace_buffer(gradient, copy)
        return copy

    def _add_gradient(
        self,
        target: TensorView,
        dy: TensorView,
        name: str,
        *,
        accumulate: int = 0,
        y: TensorView | None = None,
        act: Act = Act.NONE,
    ) -> None:
        fields: Fields = {
            "dy": dy.pointer,
            "y": y.pointer if y else None,
            "target": target.pointer,
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
        self._specs.append(OpSpec(Kind.ADD_BACKWARD, name, Direction.BACKWARD, fields, traffic=traffic))

    def _allocate(self, value: Value) -> _GradientBuffer:
        rows = self._addresses.batch * value.pixels
        buffer = Buffer(f"{value.name} gradient", rows * value.channels * FLOAT)
        return _GradientBuffer(TensorView(buffer, rows, value.channels, value.channels))

    @staticmethod
    def _replace_buffer(gradient: _Gradient, buffer: _GradientBuffer) -> None:
        if gradient.buffer is not buffer:
            gradient.buffer.refcount -= 1
            gradient.buffer = buffer
