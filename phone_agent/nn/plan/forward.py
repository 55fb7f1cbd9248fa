"""Forward ops: the op spec that computes each op of the lowered graph."""

from __future__ import annotations

from collections.abc import Callable

from phone_agent.core.ops import Kind, Pooling
from phone_agent.nn.graph import as_pair
from phone_agent.nn.plan.addresses import DRAW, Addresses
from phone_agent.nn.plan.algorithms import AlgorithmSelector
from phone_agent.nn.plan.lowered_graph import (
    AddOp,
    BatchNormOp,
    ConcatView,
    ConvOp,
    DropoutOp,
    LrnOp,
    Op,
    PoolOp,
    Value,
)
from phone_agent.nn.plan.ops import Buffer, Direction, Field, OpSpec, Pointer, TensorView

ViewLookup = Callable[[Value], TensorView]
ArgmaxBuffers = dict[PoolOp, Buffer]


class ForwardBuilder:
    """Builds forward ops. `view` returns where a value is currently stored."""

    def __init__(self, addresses: Addresses, view: ViewLookup, select: AlgorithmSelector) -> None:
        self._addresses = addresses
        self._view = view
        self._select = select
        self.argmaxes: ArgmaxBuffers = {}

    def train(self, op: Op) -> OpSpec | None:
        """Forward in training: uses batch statistics, and keeps what backward needs."""
        match op:
            case ConvOp():
                return self._conv(op, Direction.FORWARD, with_norm=True)
            case BatchNormOp():
                return self._batch_norm(op)
            case PoolOp() if op.pooling == Pooling.MAX and op.y.needs_gradient:
                rows = self._view(op.y).rows
                self.argmaxes[op] = Buffer(f"{op.name} argmaxes", rows * op.y.channels)
                return self._pool(op, Direction.FORWARD, Pointer(self.argmaxes[op]))
            case _:
                return self._forward(op, Direction.FORWARD)

    def recompute(self, op: Op) -> OpSpec | None:
        """The same output once more. Statistics and argmaxes are already known."""
        return self._forward(op, Direction.RECOMPUTE)

    def evaluate(self, op: Op) -> OpSpec | None:
        """Forward in evaluation: no dropout, and affines from the running statistics (see BATCH_NORM_FOLD)."""
        if isinstance(op, DropoutOp):
            return self._add(AddOp(op.name, op.x, None, op.y), Direction.FORWARD)
        return self._forward(op, Direction.FORWARD)

    def _forward(self, op: Op, direction: Direction) -> OpSpec | None:
        match op:
            case ConvOp():
                return self._conv(op, direction, with_norm=False)
            case AddOp():
                return self._add(op, direction)
            case PoolOp():
                return self._pool(op, direction, None)
            case LrnOp():
                return self._lrn(op, direction)
            case DropoutOp():
                return self._dropout(op, direction)
            case BatchNormOp() | ConcatView():
                return None

    def _conv(self, op: ConvOp, direction: Direction, *, with_norm: bool) -> OpSpec:
        addresses, y = self._addresses, self._view(op.y)
        kind = Kind.DEPTHWISE_FORWARD if op.depthwise else Kind.CONV_FORWARD
        shape = conv_geometry(op, addresses.batch)
        x = conv_input(self._view(op.x), op, addresses.batch)
        norm = addresses.norm(op.y.norm) if with_norm and op.y.norm else None
        fields: dict[str, Field] = {
            "g": shape,
            "x": addresses.fused_input(op.x, x),
            "weights": addresses.parameter(op.weight),
            "bias": None if op.bias is None else addresses.parameter(op.bias),
            "y": y.pointer,
            "norm": norm,
            "ld_y": y.ld,
            "act": 0 if op.y.affine else op.y.act,
            "algorithm": self._select(kind, shape),
            "dtype": y.dtype,
        }
        return OpSpec(kind, op.name, direction, fields, conv_flops(shape), x.bytes + y.bytes)

    def _batch_norm(self, op: BatchNormOp) -> OpSpec:
        z = self._view(op.x)
        fields: dict[str, Field] = {"norm": self._addresses.norm(op.norm), "z": z.pointer, "rows": z.rows, "ld_z": z.ld}
        fields["dtype"] = z.dtype
        return OpSpec(Kind.BATCH_NORM_FORWARD, op.name, Direction.FORWARD, fields, traffic=z.bytes)

    def _add(self, op: AddOp, direction: Direction) -> OpSpec:
        a, y = self._view(op.a), self._view(op.y)
        b = None if op.b is None else self._view(op.b)
        fields: dict[str, Field] = {
            "a": self._addresses.fused_input(op.a, a),
            "y": y.pointer,
            "rows": y.rows,
            "channels": y.channels,
            "ld_y": y.ld,
            "act": op.y.act,
            "dtype": y.dtype,
        }
        if op.b is not None and b is not None:
            fields["b"] = self._addresses.fused_input(op.b, b)
        traffic = a.bytes + (b.bytes if b else 0) + y.bytes
        return OpSpec(Kind.ADD_FORWARD, op.name, direction, fields, traffic=traffic)

    def _pool(self, op: PoolOp, direction: Direction, argmax: Pointer | None) -> OpSpec:
        x, y = self._view(op.x), self._view(op.y)
        fields: dict[str, Field] = {
            "g": pool_geometry(op, self._addresses.batch),
            "x": self._addresses.fused_input(op.x, x),
            "y": y.pointer,
            "argmax": argmax,
            "ld_y": y.ld,
            "pooling": op.pooling,
            "count_padding": op.count_padding,
            "dtype": y.dtype,
        }
        return OpSpec(Kind.POOLING_FORWARD, op.name, direction, fields, traffic=x.bytes + y.bytes)

    def _lrn(self, op: LrnOp, direction: Direction) -> OpSpec:
        x, y = self._view(op.x), self._view(op.y)
        fields: dict[str, Field] = {
            "x": self._addresses.fused_input(op.x, x),
            "y": y.pointer,
            "ld_y": y.ld,
            "dtype": y.dtype,
        }
        fields |= lrn_fields(op, y)
        return OpSpec(Kind.LRN_FORWARD, op.name, direction, fields, traffic=x.bytes + y.bytes)

    def _dropout(self, op: DropoutOp, direction: Direction) -> OpSpec:
        x, y = self._view(op.x), self._view(op.y)
        fields: dict[str, Field] = {
            "x": self._addresses.fused_input(op.x, x),
            "y": y.pointer,
            "ld_y": y.ld,
            "dtype": y.dtype,
        }
        fields |= dropout_fields(op, y, self._addresses)
        return OpSpec(Kind.DROPOUT_FORWARD, op.name, direction, fields, traffic=x.bytes + y.bytes)


def conv_input(view: TensorView, op: ConvOp, batch: int) -> TensorView:
    """A dense layer reads an image as one long row."""
    return view.reshape(batch) if op.flatten else view


def conv_geometry(op: ConvOp, batch: int) -> dict[str, int]:
    x, y, layer = op.x, op.y, op.layer
    kernel, padding = as_pair(layer.kernel), as_pair(layer.padding)
    height, width, channels = (1, 1, x.pixels * x.channels) if op.flatten else (x.height, x.width, x.channels)
    return {
        "batch": batch, "in_h": height, "in_w": width, "in_c": channels,
        "out_h": y.height, "out_w": y.width, "out_c": y.channels,
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride": layer.stride,
        "pad_h": padding[0], "pad_w": padding[1], "dilation": layer.dilation, "groups": layer.groups,
    }  # fmt: skip


def pool_geometry(op: PoolOp, batch: int) -> dict[str, int]:
    x, y = op.x, op.y
    return {
        "batch": batch, "in_h": x.height, "in_w": x.width, "in_c": x.channels,
        "out_h": y.height, "out_w": y.width, "out_c": y.channels,
        "kernel_h": op.kernel[0], "kernel_w": op.kernel[1], "stride": op.stride,
        "pad_h": op.padding[0], "pad_w": op.padding[1], "dilation": 1, "groups": 1,
    }  # fmt: skip


def conv_flops(shape: dict[str, int]) -> int:
    """A multiply-add counts as two. The same in all three directions."""
    pixels = shape["batch"] * shape["out_h"] * shape["out_w"]
    return 2 * pixels * shape["kernel_h"] * shape["kernel_w"] * shape["in_c"] // shape["groups"] * shape["out_c"]


def lrn_fields(op: LrnOp, view: TensorView) -> dict[str, Field]:
    layer = op.layer
    constants = {"size": layer.size, "alpha": layer.alpha, "beta": layer.beta, "k": layer.k}
    return {"rows": view.rows, "channels": view.channels, **constants}


def dropout_fields(op: DropoutOp, view: TensorView, addresses: Addresses) -> dict[str, Field]:
    seed = addresses.step_io(DRAW)
    return {"seed": seed, "rows": view.rows, "channels": view.channels, "rate": op.rate, "salt": op.salt}
