"""The structs of src/core.h, field for field. A test compares sizes with the library's own."""

from __future__ import annotations

from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_void_p
from enum import IntEnum
from typing import Any, ClassVar

ABI = 5
POOL_BYTES = 64 * 1024
RINGS_AHEAD = 8

Fields = list[tuple[str, Any]]


class Act(IntEnum):
    NONE = 0
    RELU = 1
    RELU6 = 2


class Algorithm(IntEnum):
    DIRECT = 0
    WINOGRAD2 = 1
    WINOGRAD4 = 2


class Pooling(IntEnum):
    MAX = 0
    AVERAGE = 1


class Method(IntEnum):
    SGD = 0
    NESTEROV = 1
    LARS = 2
    LAMB = 3


class Number(IntEnum):
    """How numbers lie in memory (activations: the first two) or on the wire."""

    FP32 = 0
    FP16 = 1
    BF16 = 2
    INT8 = 3


class Errand(IntEnum):
    """What happens to a piece from the left in a ring."""

    ADD = 0  # to what is here
    FINISH = 1  # added, it is the sum over all: what is passed on is what everybody ends with
    TAKE = 2  # the sum over all, from somewhere else


class Doing(IntEnum):
    """What a rank is at in a ring."""

    SEND = 0
    RECEIVE = 1
    REDUCE = 2


class Outcome(IntEnum):
    DONE = 0
    AGAIN = 1
    FAILED = 2


class Kind(IntEnum):
    CONV_FORWARD = 0
    CONV_BACKWARD_DATA = 1
    CONV_BACKWARD_WEIGHTS = 2
    DEPTHWISE_FORWARD = 3
    DEPTHWISE_BACKWARD_DATA = 4
    DEPTHWISE_BACKWARD_WEIGHTS = 5
    POOL_FORWARD = 6
    POOL_BACKWARD = 7
    NORM_FORWARD = 8
    NORM_FOLD = 9
    NORM_BACKWARD = 10
    JOIN_FORWARD = 11
    JOIN_BACKWARD = 12
    LRN_FORWARD = 13
    LRN_BACKWARD = 14
    DROPOUT_FORWARD = 15
    DROPOUT_BACKWARD = 16
    SOFTMAX_LOSS = 17
    UPDATE = 18
    ENCODE = 19
    DECODE = 20
    LOWRANK_SKETCH = 21
    LOWRANK_ORTHONORMALISE = 22
    LOWRANK_PROJECT = 23
    LOWRANK_RESTORE = 24
    AUGMENT = 25
    FMA_PEAK = 26
    DGEMM = 27
    ELIMINATE = 28


def _pointers(*names: str) -> Fields:
    return [(name, c_void_p) for name in names]


def _ints(*names: str) -> Fields:
    return [(name, c_int32) for name in names]


def _floats(*names: str) -> Fields:
    return [(name, c_float) for name in names]


def _longs(*names: str) -> Fields:
    return [(name, c_int64) for name in names]


_ROWS: Fields = _longs("rows")


class Source(Structure):
    _fields_: ClassVar = _pointers("data", "scale", "shift") + _ints("ld", "act", "number", "unused")


class Norm(Structure):
    _fields_: ClassVar = (
        _pointers(
            "gamma",
            "beta",
            "running_mean",
            "running_var",
            "mean",
            "inv_std",
            "scale",
            "shift",
            "dgamma",
            "dbeta",
            "sums",
        )
        + _floats("epsilon", "momentum")
        + _ints("channels", "accumulate")
    )


class Sink(Structure):
    _fields_: ClassVar = _pointers("data", "y", "norm") + _ints("ld", "ld_y", "act", "accumulate", "number", "unused")


class Geometry(Structure):
    _fields_: ClassVar = _ints(
        "batch", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c",
        "kernel_h", "kernel_w", "stride", "pad_h", "pad_w", "dilation", "groups",
    )  # fmt: skip


_GEOMETRY: Fields = [("g", Geometry)]
_X: Fields = [("x", Source)]
_DX: Fields = [("dx", Sink)]


class ConvForward(Structure):
    _fields_: ClassVar = (
        _GEOMETRY + _X + _pointers("weights", "bias", "y", "norm") + _ints("ld_y", "act", "algorithm", "number")
    )


class ConvBackwardData(Structure):
    _fields_: ClassVar = _GEOMETRY + _pointers("dy", "weights") + _DX + _ints("ld_dy", "algorithm")


class ConvBackwardWeights(Structure):
    _fields_: ClassVar = (
        _GEOMETRY + _X + _pointers("dy", "dweights", "dbias") + _ints("ld_dy", "algorithm", "accumulate", "unused")
    )


class PoolForward(Structure):
    _fields_: ClassVar = _GEOMETRY + _X + _pointers("y", "winner") + _ints("ld_y", "pooling", "count_padding", "number")


class PoolBackward(Structure):
    _fields_: ClassVar = (
        _GEOMETRY + _pointers("dy", "winner") + _DX + _ints("ld_dy", "pooling", "count_padding", "unused")
    )


class NormForward(Structure):
    _fields_: ClassVar = _pointers("norm", "z") + _ROWS + _ints("ld_z", "number")


class NormFold(Structure):
    _fields_: ClassVar = _pointers("norm")


class NormBackward(Structure):
    _fields_: ClassVar = (
        _pointers("norm", "z", "joined", "dy", "dz")
        + _ROWS
        + _ints("ld_z", "ld_joined", "ld_dy", "ld_dz", "act", "join_act", "reduced", "keep_dy", "number", "unused")
    )


class JoinForward(Structure):
    _fields_: ClassVar = [
        ("a", Source),
        ("b", Source),
        *_pointers("y"),
        *_ROWS,
        *_ints("channels", "ld_y", "act", "number"),
    ]


class JoinBackward(Structure):
    _fields_: ClassVar = (
        _pointers("dy", "y", "target")
        + _ROWS
        + _ints("channels", "ld_dy", "ld_y", "ld_target", "act", "accumulate", "number", "unused")
    )


_LRN: Fields = _floats("alpha", "beta", "k")


class LrnForward(Structure):
    _fields_: ClassVar = (
        _X + _pointers("y") + _ROWS + _ints("channels", "ld_y", "size", "number") + _LRN + _floats("unused")
    )


class LrnBackward(Structure):
    _fields_: ClassVar = (
        _X + _pointers("dy") + _DX + _ROWS + _ints("channels", "ld_dy", "size", "unused") + _LRN + _floats("unused2")
    )


_RATE: Fields = [("rate", c_float), ("salt", c_uint32)]


class DropoutForward(Structure):
    _fields_: ClassVar = (
        _X + _pointers("y", "draw") + _ROWS + _ints("channels", "ld_y") + _RATE + _ints("number", "unused")
    )


class DropoutBackward(Structure):
    _fields_: ClassVar = _pointers("dy") + _DX + _pointers("draw") + _ROWS + _ints("channels", "ld_dy") + _RATE


class SoftmaxLoss(Structure):
    _fields_: ClassVar = (
        _pointers("scores", "labels", "weight", "dscores", "loss")
        + _ints("batch", "classes", "ld_scores", "ld_dscores")
        + _floats("smoothing", "unused")
    )


class Rules(Structure):
    _fields_: ClassVar = _floats(
        "rate", "trust", "epsilon",
        "momentum", "gain", "correction",
        "second_momentum", "second_gain", "second_correction",
    )  # fmt: skip


class Segment(Structure):
    _fields_: ClassVar = [*_longs("start", "count"), *_floats("decay"), *_ints("adapted")]


class Update(Structure):
    _fields_: ClassVar = _pointers("values", "momenta", "second", "gradients", "rules", "segments") + _ints(
        "count", "method"
    )


class Encode(Structure):
    _fields_: ClassVar = [
        *_pointers("values", "residual", "arrived", "target"),
        ("count", c_int64),
        *_ints("number", "settle"),
    ]


class Decode(Structure):
    _fields_: ClassVar = [*_pointers("source", "values"), ("count", c_int64), *_ints("number", "accumulate")]


class LowRank(Structure):
    _fields_: ClassVar = _pointers("matrix", "residual", "left", "right", "own") + _ROWS + _ints("columns", "rank")


class ImageView(Structure):
    _fields_: ClassVar = _ints("top", "left", "height", "width", "flip", "unused")


class Augment(Structure):
    _fields_: ClassVar = _pointers("images", "views", "colours", "mean", "inv_std", "out") + _ints(
        "batch", "in_h", "in_w", "out_h", "out_w", "channels"
    )


class FmaPeak(Structure):
    _fields_: ClassVar = [*_pointers("flops"), ("count", c_int64), *_ints("in_double", "unused")]


class Dgemm(Structure):
    _fields_: ClassVar = [
        *_pointers("a", "b", "c"),
        ("alpha", c_double),
        *((name, c_int64) for name in ("rows", "columns", "depth", "lda", "ldb", "ldc")),
        *_ints("accumulate", "unused"),
    ]


class Eliminate(Structure):
    _fields_: ClassVar = [
        *_pointers("column", "factors", "largest"),
        ("pivot", c_double),
        ("rows", c_int64),
        ("ld", c_int64),
        *_ints("beside", "unused"),
    ]


class Hop(Structure):
    _fields_: ClassVar = _longs("start", "count", "bytes") + _ints("errand", "forward", "kept", "unused")


class Letter(Structure):
    _fields_: ClassVar = _pointers("request", "data", "slot") + _longs("bytes") + _ints("kept", "unused")


class Ring(Structure):
    _fields_: ClassVar = (
        _pointers("first", "hops", "arriving", "leaving")
        + _longs("first_count", "hop_count")
        + _ints("left_rank", "right_rank", "tag", "gathers", "room", "unused")
        + _longs("ready", "sent", "gone", "posted", "taken", "handled", "slots", "sent_bytes")
    )


class Stage(Structure):
    _fields_: ClassVar = _ints("first", "count", "after", "after_too", "over", "unused")


class Span(Structure):
    _fields_: ClassVar = _longs("started", "ended") + _ints("doing", "unused")


class Allreduce(Structure):
    _fields_: ClassVar = (
        _pointers("rings", "stages", "buffer", "residual", "pool", "slots", "free", "kept", "spans")
        + _pointers("send", "receive", "test", "datatype", "comm")
        + _longs("slot_bytes", "slot_count", "free_count", "first_nap", "longest_nap", "nap", "napped", "quiet_since")
        + _ints("ring_count", "stage_count", "number", "span_room", "span_count", "error")
    )


class Step(Structure):
    _fields_: ClassVar = [*_ints("kind", "unused"), *_pointers("op")]


STRUCTS: dict[Kind, type[Structure]] = {
    Kind.CONV_FORWARD: ConvForward,
    Kind.CONV_BACKWARD_DATA: ConvBackwardData,
    Kind.CONV_BACKWARD_WEIGHTS: ConvBackwardWeights,
    Kind.DEPTHWISE_FORWARD: ConvForward,
    Kind.DEPTHWISE_BACKWARD_DATA: ConvBackwardData,
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: ConvBackwardWeights,
    Kind.POOL_FORWARD: PoolForward,
    Kind.POOL_BACKWARD: PoolBackward,
    Kind.NORM_FORWARD: NormForward,
    Kind.NORM_FOLD: NormFold,
    Kind.NORM_BACKWARD: NormBackward,
    Kind.JOIN_FORWARD: JoinForward,
    Kind.JOIN_BACKWARD: JoinBackward,
    Kind.LRN_FORWARD: LrnForward,
    Kind.LRN_BACKWARD: LrnBackward,
    Kind.DROPOUT_FORWARD: DropoutForward,
    Kind.DROPOUT_BACKWARD: DropoutBackward,
    Kind.SOFTMAX_LOSS: SoftmaxLoss,
    Kind.UPDATE: Update,
    Kind.ENCODE: Encode,
    Kind.DECODE: Decode,
    Kind.LOWRANK_SKETCH: LowRank,
    Kind.LOWRANK_ORTHONORMALISE: LowRank,
    Kind.LOWRANK_PROJECT: LowRank,
    Kind.LOWRANK_RESTORE: LowRank,
    Kind.AUGMENT: Augment,
    Kind.FMA_PEAK: FmaPeak,
    Kind.DGEMM: Dgemm,
    Kind.ELIMINATE: Eliminate,
}
