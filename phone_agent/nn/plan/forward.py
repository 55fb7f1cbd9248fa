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
Fields = dict[str, Field]


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
                return self._one_input(Kind.LRN_FORWARD, op, direction, lrn_fields(op, self._view(op.y)))
            case DropoutOp():
                fields = dropout_fields(op, self._view(op.y), self._addresses)
                return self._one_input(Kind.DROPOUT_FORWARD, op, direction, fields)
            case BatchNormOp() | ConcatView():
                return None

    def _conv(self, op: ConvOp, direction: Direction, *, with_norm: bool) -> OpSpec:
        addresses, y = self._addresses, self._view(op.y)
        kind = Kind.DEPTHWISE_FORWARD if op.depthwise else Kind.CONV_FORWARD
        shape = conv_geometry(op, addresses.batch)
        x = conv_input(self._view(op.x), op, addresses.batch)
        norm = addresses.norm(op.y.norm) if with_norm and op.y.norm else None
        fields: Fields = {
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
        fields: Fields = {"norm": self._addresses.norm(op.norm), "z": z.pointer, "rows": z.rows, "ld_z": z.ld}
        fields["dtype"] = z.dtype
        return OpSpec(Kind.BATCH_NORM_FORWARD, op.name, Direction.FORWARD, fields, traffic=z.bytes)

    def _add(self, op: AddOp, direction: Direction) -> OpSpec:
        a, y = self._view(op.a), self._view(op.y)
        b = None if op.b is None else self._view(op.b)
        fields: Fields = {
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
        fields: Fields = {
            "g": pool_geometry(op, self._addresses.batch),
            "argmax": argmax,
            "pooling": op.pooling,
            "count_padding": op.count_padding,
        }
        return self._one_input(Kind.POOLING_FORWARD, op, direction, fields)

    def _one_input(self, kind: Kind, op: PoolOp | LrnOp | DropoutOp, direction: Direction, fields: Fields) -> OpSpec:
        x, y = self._view(op.x), self._view(op.y)
        common: Fields = {
            "x": self._addresses.fused_input(op.x, x),
            "y": y.pointer,
            "ld_y": y.ld,
            "dtype": y.dtype,
        }
        return OpSpec(kind, op.name, direction, common | fields, traffic=x.bytes + y.bytes)


def conv_input(view: TensorView, op: ConvOp, batch: int) -> TensorView:
    """A dense layer reads an image as one long row."""
    return view.reshape(batch) if op.flatten else view


def conv_geometry(op: ConvOp, batch: int) -> dict[str, int]:
    x, layer = op.x, op.layer
    image = (1, 1, x.pixels * x.channels) if op.flatten else (x.height, x.width, x.channels)
    window = _geometry(batch, image, op.y, as_pair(layer.kernel), layer.stride, as_pair(layer.padding))
    return window | {"dilation": layer.dilation, "groups": layer.groups}


def pool_geometry(op: PoolOp, batch: int) -> dict[str, int]:
    image = (op.x.height, op.x.width, op.x.channels)
    return _geometry(batch, image, op.y, op.kernel, op.stride, op.padding) | {"dilation": 1, "groups": 1}


def _geometry(  # noqa: PLR0917 - as one writes a layer down
    batch: int, image: tuple[int, int, int], y: Value, kernel: tuple[int, int], stride: int, padding: tuple[int, int]
) -> dict[str, int]:
    return {
        "batch": batch, "in_h": image[0], "in_w": image[1], "in_c": image[2],
        "out_h": y.height, "out_w": y.width, "out_c": y.channels,
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride": stride, "pad_h": padding[0], "pad_w": padding[1],
    }  # fmt: skip


def conv_flops(shape: dict[str, int]) -> int:
    """A multiply-add counts as two. The same in all three directions."""
    pixels = shape["batch"] * shape["out_h"] * shape["out_w"]
    return 2 * pixels * shape["kernel_h"] * shape["kernel_w"] * shape["in_c"] // shape["groups"] * shape["out_c"]


def lrn_fields(op: LrnOp, view: TensorView) -> Fields:
    layer = op.layer
    constants = {"size": layer.size, "alpha": layer.alpha, "beta": layer.beta, "k": layer.k}
    return {"rows": view.rows, "channels": view.channels, **constants}


def dropout_fields(op: DropoutOp, view: TensorView, addresses: Addresses) -> Fields:
    seed = addresses.step_io(DRAW)
    return {"seed": seed, "rows": view.rows, "channels": view.channels, "rate": op.rate, "salt": op.salt}
