"""Building blocks of cases: tolerances, storage types, fused inputs and fused gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from phone_agent.core import ops
from phone_agent.core.ops import Act, DType, Geometry
from tests.phone_agent.core import oracle
from tests.phone_agent.core.memory import Array, Case, Memory, Wanted, block, read_rows, struct, written_rows
from tests.phone_agent.core.random_data import RandomData


class Cases(Protocol):
    def __call__(self, *, full: bool) -> Iterator[Case]: ...


# Tolerances: the largest error relative to the largest value of the result, for float32 sums of thousands of products.
SUMS = 1e-5
WINOGRAD2 = 3e-5
WINOGRAD4 = 3e-4
ELEMENTWISE = 2e-6
STATISTICS = 3e-6
POWERS = 5e-6
SOFTMAX = 5e-6
EXACT = 0.0

# Storage types of the inputs and of the result. FP16 adds its rounding error to the tolerance of the result.
DTypes = tuple[DType, DType]
FLOATS: DTypes = (DType.FP32, DType.FP32)
HALVES: list[DTypes] = [(DType.FP16, DType.FP16), (DType.FP32, DType.FP16), (DType.FP16, DType.FP32)]


def random_data_for(name: str, dtypes: DTypes) -> RandomData:
    return RandomData(name, half=dtypes != FLOATS)


def dtype_label(dtypes: DTypes) -> str:
    return "" if dtypes == FLOATS else f" {dtypes[0].name.lower()}-{dtypes[1].name.lower()}"


class FusedInputCase:
    """A fused input: the stored tensor, and the values with the fused operation applied."""

    def __init__(
        self,
        draw: RandomData,
        name: str,
        shape: tuple[int, ...],
        extra: int,
        act: Act | None,
        dtype: DType = DType.FP32,
        *,
        exact: bool = False,
    ) -> None:
        stored = draw.eighths(*shape) if exact else draw.normal(*shape)
        channels = shape[-1]
        fields: dict[str, Any] = {"data": read_rows(name, stored, channels + extra, dtype), "ld": channels + extra}
        fields["dtype"] = dtype
        scale = shift = None
        if act is not None:
            scale = draw.choice([0.5, 1, 2, -1], channels) if exact else draw.normal(channels)
            shift = draw.eighths(channels) if exact else draw.normal(channels)
            fields |= {"scale": block("scale", scale), "shift": block("shift", shift), "act": act}
        self.memory = struct(ops.FusedInput, **fields)
        self.values = oracle.seen(stored, scale, shift, act or Act.NONE)


SOURCES: list[Act | None] = [None, Act.RELU, Act.NONE, Act.RELU6]


class Norm:
    """A batch normalization, before its statistics are known, or after (with `z`)."""

    EPSILON, MOMENTUM = 1e-5, 0.1

    def __init__(self, draw: RandomData, channels: int, *, known: bool, accumulate: bool = False) -> None:
        self.channels = channels
        self.gamma, self.beta = draw.normal(channels), draw.normal(channels)
        self.running_mean, self.running_var = draw.normal(channels), draw.positive(channels)
        self.mean, self.inv_std = draw.normal(channels), draw.positive(channels)
        self.scale = (self.gamma * self.inv_std).astype(np.float32).astype(np.float64)
        self.shift = (self.beta - self.mean * self.scale).astype(np.float32).astype(np.float64)
        self.dgamma, self.dbeta = draw.normal(channels), draw.normal(channels)
        self.accumulate = accumulate
        unknown = np.full(channels, np.nan)
        self._blocks = {
            "gamma": block("gamma", self.gamma),
            "beta": block("beta", self.beta),
            "running_mean": block("running_mean", self.running_mean),
            "running_var": block("running_var", self.running_var),
            "dgamma": block("dgamma", self.dgamma if accumulate else unknown),
            "dbeta": block("dbeta", self.dbeta if accumulate else unknown),
            **{
                part: block(part, getattr(self, part) if known else unknown)
                for part in ("mean", "inv_std", "scale", "shift")
            },
        }
        self.sums = Memory("sums", np.full(2 * channels, np.nan), per_thread=True)
        self.memory = struct(
            ops.BatchNorm, "norm", **self._blocks, sums=self.sums,
            epsilon=self.EPSILON, momentum=self.MOMENTUM, channels=channels, accumulate=int(accumulate),
        )  # fmt: skip

    def part(self, name: str) -> Memory:
        return self._blocks[name]

    def wants(self, tolerance: float, **values: Array) -> Iterator[Wanted]:
        for part, want in values.items():
            yield Wanted(self._blocks[part], want, tolerance)

    def wants_statistics(self, z: Array) -> Iterator[Wanted]:
        mean, inv_std, unbiased = oracle.statistics(z, self.EPSILON)
        momentum = self.MOMENTUM if z.size > self.channels else 0  # a single value changes no running statistics
        # The effect of rounding z if the mean is large compared with the spread.
        cost = np.abs(mean) * inv_std**2 / inv_std.max()
        yield from self.wants(
            STATISTICS * max(1.0, float(cost.max())),
            mean=mean,
            inv_std=inv_std,
            scale=self.gamma * inv_std,
            shift=self.beta - mean * self.gamma * inv_std,
            running_mean=(1 - momentum) * self.running_mean + momentum * mean,
            running_var=(1 - momentum) * self.running_var + momentum * unbiased,
        )

    def off_the_edges(self, draw: RandomData, shape: tuple[int, ...], act: Act) -> Array:
        """Values of z for which rounding cannot change which gradients pass: away from scale z + shift = 0 or 6."""
        z = draw.normal(*shape)
        if act == Act.NONE:
            return z
        y = self.scale * z + self.shift
        near = (np.abs(y) < 1e-3) | (np.abs(y - 6) < 1e-3)
        return draw.rounded(np.where(near, z + 0.01 / np.where(np.abs(self.scale) < 1e-3, 1e-3, self.scale), z))


class FusedGradientCase:
    """A fused gradient of one variant, and its expected contents after `gradient` was stored."""

    def __init__(
        self,
        draw: RandomData,
        gradient: Array,
        variety: tuple[bool, str, Act],
        extra: int,
        tolerance: float,
        dtype: DType = DType.FP32,
    ) -> None:
        accumulate, mask, act = variety
        channels = gradient.shape[-1]
        before = draw.normal(*gradient.shape) if accumulate else None
        total = gradient if before is None else gradient + before
        fields: dict[str, Any] = {"act": act, "accumulate": int(accumulate), "ld": channels + extra}
        self.wanted: list[Wanted] = []
        if mask == "norm":
            norm = Norm(draw, channels, known=True)
            z = norm.off_the_edges(draw, gradient.shape, act)
            total = oracle.passed(total, norm.scale * z + norm.shift, act)
            fields |= {"y": read_rows("z", z, channels + 2, dtype), "ld_y": channels + 2, "norm": norm.memory}
            self.wanted.append(Wanted(norm.sums, oracle.gradient_sums(total, z, norm.mean).reshape(-1), SUMS))
        elif act != Act.NONE:
            y = oracle.activate(4 * draw.normal(*gradient.shape), act)
            total = oracle.passed(total, y, act)
            fields |= {"y": read_rows("masking y", y, channels + 1, dtype), "ld_y": channels + 1}
        into = written_rows("dx", before, total, channels + extra, tolerance)
        self.wanted.append(into)
        self.memory = struct(ops.FusedGradient, **fields, data=into.memory, dtype=dtype)


SINKS: list[tuple[bool, str, Act]] = [
    (False, "", Act.NONE),
    (True, "", Act.NONE),
    (False, "y", Act.RELU),
    (True, "y", Act.RELU6),
    (False, "norm", Act.RELU),
    (True, "norm", Act.RELU6),
    (True, "norm", Act.NONE),
]


def image(g: Geometry) -> tuple[int, int, int, int]:
    return g.batch, g.in_h, g.in_w, g.in_c


def result(g: Geometry) -> tuple[int, int, int, int]:
    return g.batch, g.out_h, g.out_w, g.out_c


def weight(g: Geometry) -> tuple[int, int, int, int]:
    return g.kernel_h, g.kernel_w, g.in_c // g.groups, g.out_c


def part_of(g: Geometry) -> Memory:
    return Memory("geometry", np.frombuffer(bytes(g), np.uint8))
