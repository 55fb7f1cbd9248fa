"""The structs of src/core.h, field by field. A test compares them with the header and with the library.

`__slots__ = ()` makes a misspelled field an AttributeError; ctypes would accept it silently.
"""

from __future__ import annotations

from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_void_p
from enum import IntEnum
from typing import Any, ClassVar

ABI = 6
THREAD_POOL_BYTES = 64 * 1024
RING_MAX_IN_FLIGHT = 8

Fields = list[tuple[str, Any]]


class Act(IntEnum):
    """Activation functions."""

    NONE = 0
    RELU = 1
    RELU6 = 2


class Algorithm(IntEnum):
    """How a convolution is computed: implicit GEMM, or Winograd F(2x2) and F(4x4)."""

    DIRECT = 0
    WINOGRAD2 = 1
    WINOGRAD4 = 2


class Pooling(IntEnum):
    MAX = 0
    AVERAGE = 1


class OptimizerKind(IntEnum):
    SGD = 0
    NESTEROV = 1
    LARS = 2
    LAMB = 3


class DType(IntEnum):
    """Element type in memory (activations: FP32 or FP16) or on the wire."""

    FP32 = 0
    FP16 = 1
    BF16 = 2
    INT8 = 3


class RingOp(IntEnum):
    """What a rank does with a chunk that it receives from its left neighbor."""

    REDUCE = 0  # add it to the local chunk
    REDUCE_FINAL = 1  # add it; the result is the sum over all ranks, and every rank ends with what is sent on
    COPY = 2  # the sum over all ranks, completed elsewhere


class SpanKind(IntEnum):
    """What a rank spends its time on in a ring."""

    SEND = 0
    RECEIVE = 1
    REDUCE = 2


class RingStatus(IntEnum):
    """The result of core_allreduce_run; PENDING: call it again."""

    DONE = 0
    PENDING = 1
    FAILED = 2


class Kind(IntEnum):
    """The ops of the core; STRUCTS has the struct of each."""

    CONV_FORWARD = 0
    CONV_BACKWARD_DATA = 1
    CONV_BACKWARD_WEIGHTS = 2
    DEPTHWISE_FORWARD = 3
    DEPTHWISE_BACKWARD_DATA = 4
    DEPTHWISE_BACKWARD_WEIGHTS = 5
    POOLING_FORWARD = 6
    POOLING_BACKWARD = 7
    BATCH_NORM_FORWARD = 8
    BATCH_NORM_FOLD = 9
    BATCH_NORM_BACKWARD = 10
    ADD_FORWARD = 11
    ADD_BACKWARD = 12
    LRN_FORWARD = 13
    LRN_BACKWARD = 14
    DROPOUT_FORWARD = 15
    DROPOUT_BACKWARD = 16
    SOFTMAX_LOSS = 17
    OPTIMIZER_UPDATE = 18
    ENCODE = 19
    DECODE = 20
    LOWRANK_SKETCH = 21
    LOWRANK_ORTHONORMALIZE = 22
    LOWRANK_PROJECT = 23
    LOWRANK_RECONSTRUCT = 24
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


class FusedInput(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("data", "scale", "shift") + _ints("ld", "act", "dtype", "unused")


class BatchNorm(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("gamma", "beta", "running_mean", "running_var", "mean", "inv_std", "scale", "shift")
        + _pointers("dgamma", "dbeta", "sums")
        + _floats("epsilon", "momentum")
        + _ints("channels", "accumulate")
    )


class FusedGradient(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("data", "y", "norm") + _ints("ld", "ld_y", "act", "accumulate", "dtype", "unused")


class Geometry(Structure):
    __slots__ = ()
    _fields_: ClassVar = _ints(
        "batch", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c",
        "kernel_h", "kernel_w", "stride", "pad_h", "pad_w", "dilation", "groups",
    )  # fmt: skip


_GEOMETRY: Fields = [("g", Geometry)]
_X: Fields = [("x", FusedInput)]
_DX: Fields = [("dx", FusedGradient)]


class ConvForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _GEOMETRY + _X + _pointers("weights", "bias", "y", "norm") + _ints("ld_y", "act", "algorithm", "dtype")
    )


class ConvBackwardData(Structure):
    __slots__ = ()
    _fields_: ClassVar = _GEOMETRY + _pointers("dy", "weights") + _DX + _ints("ld_dy", "algorithm")


class ConvBackwardWeights(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _GEOMETRY + _X + _pointers("dy", "dweights", "dbias") + _ints("ld_dy", "algorithm", "accumulate", "unused")
    )


class PoolingForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = _GEOMETRY + _X + _pointers("y", "argmax") + _ints("ld_y", "pooling", "count_padding", "dtype")


class PoolingBackward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _GEOMETRY + _pointers("dy", "argmax") + _DX + _ints("ld_dy", "pooling", "count_padding", "unused")
    )


class BatchNormForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("norm", "z") + _ROWS + _ints("ld_z", "dtype")


class BatchNormFold(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("norm")


class BatchNormBackward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("norm", "z", "residual_sum", "dy", "dz")
        + _ROWS
        + _ints(
            "ld_z", "ld_residual_sum", "ld_dy", "ld_dz", "act", "residual_act", "reduced", "keep_dy", "dtype", "unused"
        )
    )


class AddForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = [
        ("a", FusedInput),
        ("b", FusedInput),
        *_pointers("y"),
        *_ROWS,
        *_ints("channels", "ld_y", "act", "dtype"),
    ]


class AddBackward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("dy", "y", "target")
        + _ROWS
        + _ints("channels", "ld_dy", "ld_y", "ld_target", "act", "accumulate", "dtype", "unused")
    )


_LRN: Fields = _floats("alpha", "beta", "k")


class LrnForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _X + _pointers("y") + _ROWS + _ints("channels", "ld_y", "size", "dtype") + _LRN + _floats("unused")
    )


class LrnBackward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _X + _pointers("dy") + _DX + _ROWS + _ints("channels", "ld_dy", "size", "unused") + _LRN + _floats("unused2")
    )


_RATE: Fields = [("rate", c_float), ("salt", c_uint32)]


class DropoutForward(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _X + _pointers("y", "seed") + _ROWS + _ints("channels", "ld_y") + _RATE + _ints("dtype", "unused")
    )


class DropoutBackward(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("dy") + _DX + _pointers("seed") + _ROWS + _ints("channels", "ld_dy") + _RATE


class SoftmaxLoss(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("logits", "labels", "weight", "dlogits", "loss")
        + _ints("batch", "classes", "ld_logits", "ld_dlogits")
        + _floats("smoothing", "unused")
    )


class OptimizerParams(Structure):
    __slots__ = ()
    _fields_: ClassVar = _floats(
        "lr", "trust_coefficient", "epsilon",
        "momentum", "one_minus_momentum", "bias_correction",
        "beta2", "one_minus_beta2", "bias_correction2",
    )  # fmt: skip


class Segment(Structure):
    __slots__ = ()
    _fields_: ClassVar = [*_longs("start", "count"), *_floats("weight_decay"), *_ints("adaptive")]


class OptimizerUpdate(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("weights", "momenta", "second_moments", "gradients", "params", "segments") + _ints(
        "count", "optimizer"
    )


class Encode(Structure):
    __slots__ = ()
    _fields_: ClassVar = [
        *_pointers("values", "residual", "received", "encoded"),
        ("count", c_int64),
        *_ints("dtype", "write_back"),
    ]


class Decode(Structure):
    __slots__ = ()
    _fields_: ClassVar = [*_pointers("encoded", "values"), ("count", c_int64), *_ints("dtype", "accumulate")]


class LowRank(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("matrix", "residual", "left", "right", "local_right") + _ROWS + _ints("columns", "rank")
    )


class CropWindow(Structure):
    __slots__ = ()
    _fields_: ClassVar = _ints("top", "left", "height", "width", "flip", "unused")


class Augment(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("images", "crops", "color_matrices", "mean", "inv_std", "out") + _ints(
        "batch", "in_h", "in_w", "out_h", "out_w", "channels"
    )


class FmaPeak(Structure):
    __slots__ = ()
    _fields_: ClassVar = [*_pointers("flops"), ("count", c_int64), *_ints("in_double", "unused")]


class Dgemm(Structure):
    __slots__ = ()
    _fields_: ClassVar = [
        *_pointers("a", "b", "c"),
        ("alpha", c_double),
        *((name, c_int64) for name in ("rows", "columns", "depth", "lda", "ldb", "ldc")),
        *_ints("accumulate", "unused"),
    ]


class Eliminate(Structure):
    __slots__ = ()
    _fields_: ClassVar = [
        *_pointers("column", "factors", "next_pivot"),
        ("pivot", c_double),
        ("rows", c_int64),
        ("ld", c_int64),
        *_ints("trailing_columns", "unused"),
    ]


class Hop(Structure):
    __slots__ = ()
    _fields_: ClassVar = _longs("start", "count", "bytes") + _ints("op", "forward", "cache_index", "unused")


class Message(Structure):
    __slots__ = ()
    _fields_: ClassVar = _pointers("request", "data", "slot") + _longs("bytes") + _ints("cache_index", "unused")


class Ring(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers("initial", "hops", "receives", "sends")
        + _longs("initial_count", "hop_count")
        + _ints("left_rank", "right_rank", "tag", "is_allgather", "max_slots", "unused")
        + _longs("sends_ready", "sends_posted", "sends_done", "receives_posted", "receives_in_place", "receives_done")
        + _longs("slots_held", "bytes_sent")
    )


class Stage(Structure):
    __slots__ = ()
    _fields_: ClassVar = _ints("first_ring", "ring_count", "depends_on", "also_depends_on", "done", "unused")


class Span(Structure):
    __slots__ = ()
    _fields_: ClassVar = _longs("started", "ended") + _ints("kind", "unused")


class Allreduce(Structure):
    __slots__ = ()
    _fields_: ClassVar = (
        _pointers(
            "rings", "stages", "buffer", "residual", "thread_pool", "slots", "free_slots", "cached_slots", "spans"
        )
        + _pointers("send", "receive", "test", "datatype", "comm")
        + _longs("slot_bytes", "slot_count", "free_count")
        + _longs("min_sleep_ns", "max_sleep_ns", "sleep_ns", "slept_ns", "idle_since")
        + _ints("ring_count", "stage_count", "dtype", "span_capacity", "span_count", "error")
    )


class Step(Structure):
    __slots__ = ()
    _fields_: ClassVar = [*_ints("kind", "unused"), *_pointers("op")]


STRUCTS: dict[Kind, type[Structure]] = {
    Kind.CONV_FORWARD: ConvForward,
    Kind.CONV_BACKWARD_DATA: ConvBackwardData,
    Kind.CONV_BACKWARD_WEIGHTS: ConvBackwardWeights,
    Kind.DEPTHWISE_FORWARD: ConvForward,
    Kind.DEPTHWISE_BACKWARD_DATA: ConvBackwardData,
    Kind.DEPTHWISE_BACKWARD_WEIGHTS: ConvBackwardWeights,
    Kind.POOLING_FORWARD: PoolingForward,
    Kind.POOLING_BACKWARD: PoolingBackward,
    Kind.BATCH_NORM_FORWARD: BatchNormForward,
    Kind.BATCH_NORM_FOLD: BatchNormFold,
    Kind.BATCH_NORM_BACKWARD: BatchNormBackward,
    Kind.ADD_FORWARD: AddForward,
    Kind.ADD_BACKWARD: AddBackward,
    Kind.LRN_FORWARD: LrnForward,
    Kind.LRN_BACKWARD: LrnBackward,
    Kind.DROPOUT_FORWARD: DropoutForward,
    Kind.DROPOUT_BACKWARD: DropoutBackward,
    Kind.SOFTMAX_LOSS: SoftmaxLoss,
    Kind.OPTIMIZER_UPDATE: OptimizerUpdate,
    Kind.ENCODE: Encode,
    Kind.DECODE: Decode,
    Kind.LOWRANK_SKETCH: LowRank,
    Kind.LOWRANK_ORTHONORMALIZE: LowRank,
    Kind.LOWRANK_PROJECT: LowRank,
    Kind.LOWRANK_RECONSTRUCT: LowRank,
    Kind.AUGMENT: Augment,
    Kind.FMA_PEAK: FmaPeak,
    Kind.DGEMM: Dgemm,
    Kind.ELIMINATE: Eliminate,
}
