"""One piece of work, forward: the step that computes it."""

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
    """Makes forward steps; `see` tells where values lie at the moment."""

    def __init__(self, places: Addresses, see: ViewLookup, choose: AlgorithmSelector) -> None:
        self._places = places
        self._see = see
        self._choose = choose
        self.argmaxes: ArgmaxBuffers = {}

    def train(self, work: Op) -> OpSpec | None:
        """As in training: statistics of the batch, and what backward will ask for is kept."""
        match work:
            case ConvOp():
                return self._convolve(work, Direction.FORWARD, with_norm=True)
            case BatchNormOp():
                return self._normalise(work)
            case PoolOp() if work.pooling == Pooling.MAX and work.y.needs_gradient:
                rows = self._see(work.y).rows
                self.argmaxes[work] = Buffer(f"{work.name} argmaxes", rows * work.y.channels)
                return self._pool(work, Direction.FORWARD, Pointer(self.argmaxes[work]))
            case _:
                return self._same(work, Direction.FORWARD)

    def again(self, work: Op) -> OpSpec | None:
        """The same output once more. Statistics and argmaxes are known by now."""
        return self._same(work, Direction.AGAIN)

    def use(self, work: Op) -> OpSpec | None:
        """As in evaluation: nothing is dropped, scales are those of the running statistics (see NORM_FOLD)."""
        if isinstance(work, DropoutOp):
            return self._join(AddOp(work.name, work.x, None, work.y), Direction.FORWARD)
        return self._same(work, Direction.FORWARD)

    def _same(self, work: Op, direction: Direction) -> OpSpec | None:
        match work:
            case ConvOp():
                return self._convolve(work, direction, with_norm=False)
            case AddOp():
                return self._join(work, direction)
            case PoolOp():
                return self._pool(work, direction, None)
            case LrnOp():
                return self._response_norm(work, direction)
            case DropoutOp():
                return self._drop(work, direction)
            case BatchNormOp() | ConcatView():
                return None

    def _convolve(self, work: ConvOp, direction: Direction, *, with_norm: bool) -> OpSpec:
        places, y = self._places, self._see(work.y)
        kind = Kind.DEPTHWISE_FORWARD if work.depthwise else Kind.CONV_FORWARD
        shape = conv_geometry(work, places.batch)
        x = conv_input(self._see(work.x), work, places.batch)
        norm = places.norm(work.y.norm) if with_norm and work.y.norm else None
        fields: dict[str, Field] = {
            "g": shape,
            "x": places.source(work.x, x),
            "weights": places.value(work.weight),
            "bias": None if work.bias is None else places.value(work.bias),
            "y": y.place,
            "norm": norm,
            "ld_y": y.ld,
            "act": 0 if work.y.scales else work.y.act,
            "algorithm": self._choose(kind, shape),
            "dtype": y.dtype,
        }
        return OpSpec(kind, work.name, direction, fields, conv_flops(shape), x.bytes + y.bytes)

    def _normalise(self, work: BatchNormOp) -> OpSpec:
        z = self._see(work.x)
        fields: dict[str, Field] = {"norm": self._places.norm(work.norm), "z": z.place, "rows": z.rows, "ld_z": z.ld}
        fields["dtype"] = z.dtype
        return OpSpec(Kind.BATCH_NORM_FORWARD, work.name, Direction.FORWARD, fields, traffic=z.bytes)

    def _join(self, work: AddOp, direction: Direction) -> OpSpec:
        a, y = self._see(work.a), self._see(work.y)
        b = None if work.b is None else self._see(work.b)
        fields: dict[str, Field] = {
            "a": self._places.source(work.a, a),
            "y": y.place,
            "rows": y.rows,
            "channels": y.channels,
            "ld_y": y.ld,
            "act": work.y.act,
            "dtype": y.dtype,
        }
        if work.b is not None and b is not None:
            fields["b"] = self._places.source(work.b, b)
        traffic = a.bytes + (b.bytes if b else 0) + y.bytes
        return OpSpec(Kind.ADD_FORWARD, work.name, direction, fields, traffic=traffic)

    def _pool(self, work: PoolOp, direction: Direction, argmax: Pointer | None) -> OpSpec:
        x, y = self._see(work.x), self._see(work.y)
        fields: dict[str, Field] = {
            "g": pool_geometry(work, self._places.batch),
            "x": self._places.source(work.x, x),
            "y": y.place,
            "argmax": argmax,
            "ld_y": y.ld,
            "pooling": work.pooling,
            "count_padding": work.count_padding,
            "dtype": y.dtype,
        }
        return OpSpec(Kind.POOLING_FORWARD, work.name, direction, fields, traffic=x.bytes + y.bytes)

    def _response_norm(self, work: LrnOp, direction: Direction) -> OpSpec:
        x, y = self._see(work.x), self._see(work.y)
        fields: dict[str, Field] = {"x": self._places.source(work.x, x), "y": y.place, "ld_y": y.ld, "dtype": y.dtype}
        fields |= lrn_fields(work, y)
        return OpSpec(Kind.LRN_FORWARD, work.name, direction, fields, traffic=x.bytes + y.bytes)

    def _drop(self, work: DropoutOp, direction: Direction) -> OpSpec:
        x, y = self._see(work.x), self._see(work.y)
        fields: dict[str, Field] = {"x": self._places.source(work.x, x), "y": y.place, "ld_y": y.ld, "dtype": y.dtype}
        fields |= dropout_fields(work, y, self._places)
        return OpSpec(Kind.DROPOUT_FORWARD, work.name, direction, fields, traffic=x.bytes + y.bytes)


def conv_input(view: TensorView, work: ConvOp, batch: int) -> TensorView:
    """A fully connected layer reads a map as one long row."""
    return view.flat(batch) if work.flat else view


def conv_geometry(work: ConvOp, batch: int) -> dict[str, int]:
    x, y, layer = work.x, work.y, work.layer
    kernel, padding = as_pair(layer.kernel), as_pair(layer.padding)
    height, width, channels = (1, 1, x.pixels * x.channels) if work.flat else (x.height, x.width, x.channels)
    return {
        "batch": batch, "in_h": height, "in_w": width, "in_c": channels,
        "out_h": y.height, "out_w": y.width, "out_c": y.channels,
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride": layer.stride,
        "pad_h": padding[0], "pad_w": padding[1], "dilation": layer.dilation, "groups": layer.groups,
    }  # fmt: skip


def pool_geometry(work: PoolOp, batch: int) -> dict[str, int]:
    x, y = work.x, work.y
    return {
        "batch": batch, "in_h": x.height, "in_w": x.width, "in_c": x.channels,
        "out_h": y.height, "out_w": y.width, "out_c": y.channels,
        "kernel_h": work.kernel[0], "kernel_w": work.kernel[1], "stride": work.stride,
        "pad_h": work.padding[0], "pad_w": work.padding[1], "dilation": 1, "groups": 1,
    }  # fmt: skip


def conv_flops(shape: dict[str, int]) -> int:
    """A multiplication and an addition count as two. The same in all three directions."""
    pixels = shape["batch"] * shape["out_h"] * shape["out_w"]
    return 2 * pixels * shape["kernel_h"] * shape["kernel_w"] * shape["in_c"] // shape["groups"] * shape["out_c"]


def lrn_fields(work: LrnOp, view: TensorView) -> dict[str, Field]:
    layer = work.layer
    constants = {"size": layer.size, "alpha": layer.alpha, "beta": layer.beta, "k": layer.k}
    return {"rows": view.rows, "channels": view.channels, **constants}


def dropout_fields(work: DropoutOp, view: TensorView, places: Addresses) -> dict[str, Field]:
    draw = places.cell(DRAW)
    return {"seed": draw, "rows": view.rows, "channels": view.channels, "rate": work.rate, "salt": work.salt}
