"""A graph as the core computes it: normalisations and activations inside the layers they follow, branches side by side.

No batch size here, and no memory: only what is stored, who makes it, and how its readers see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from phone_agent.core.ops import Act, Pooling
from phone_agent.nn.graph import BatchNorm, Conv, LocalResponseNorm


@dataclass(eq=False)
class Storage:
    """Rows of `channels` floats, `pixels` an image. Several values may lie side by side in it."""

    name: str
    pixels: int
    channels: int
    writers: list[Op] = field(default_factory=list)


@dataclass(eq=False)
class Affine:
    """A scale and a shift for each channel. 1 and 0 until a normalisation writes its own."""

    channels: int
    offset: int = 0  # in the floats kept for them: `channels` scales, then as many shifts


@dataclass(eq=False)
class Norm:
    """A batch normalisation, and which part of which scales it fills."""

    name: str
    layer: BatchNorm
    channels: int
    scales: Affine
    start: int = 0
    offset: int = 0  # of mean and inv_std, in the same floats


@dataclass(eq=False)
class Value:
    """What a layer gives. Readers see act(scale * stored + shift) where there are scales; else the act is stored."""

    name: str
    height: int
    width: int
    channels: int
    storage: Storage
    start: int = 0
    scales: Affine | None = None
    scales_start: int = 0
    norm: Norm | None = None
    act: Act = Act.NONE
    within: Act = Act.NONE  # an activation that would change nothing any more
    maker: Op | None = None  # nobody: the image
    readers: list[Op] = field(default_factory=list)
    needs_gradient: bool = False

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def fills_its_storage(self) -> bool:
        return self.channels == self.storage.channels


@dataclass(eq=False)
class ConvOp:
    """Also fully connected: the whole map is then one pixel with many channels (`flat`). `learns`: its weights or its
    bias do; gradients of both are computed then, and else of neither."""

    name: str
    layer: Conv
    weight: str
    bias: str | None
    x: Value
    y: Value
    flat: bool = False
    learns: bool = True

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)

    @property
    def depthwise(self) -> bool:
        return not self.flat and self.layer.is_depthwise((self.x.height, self.x.width, self.x.channels))


@dataclass(eq=False)
class BatchNormOp:
    """Where no convolution comes right before: y is stored where x is, and only seen differently."""

    name: str
    norm: Norm
    x: Value
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(eq=False)
class AddOp:
    """y = act(a + b), stored; without b a copy of a, as its readers see it."""

    name: str
    a: Value
    b: Value | None
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.a,) if self.b is None else (self.a, self.b)


@dataclass(eq=False)
class PoolOp:
    name: str
    pooling: Pooling
    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]
    count_padding: bool
    x: Value
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(eq=False)
class LrnOp:
    name: str
    layer: LocalResponseNorm
    x: Value
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(eq=False)
class DropoutOp:
    name: str
    rate: float
    salt: int
    x: Value
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(eq=False)
class ConcatView:
    """Values side by side in one storage: nothing to compute."""

    name: str
    parts: tuple[Value, ...]
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.parts


Op: TypeAlias = ConvOp | BatchNormOp | AddOp | PoolOp | LrnOp | DropoutOp | ConcatView


@dataclass(frozen=True)
class LoweredGraph:
    """Work in the order it runs. `vectors` floats hold all scales, shifts, means and deviations."""

    image: Value
    works: tuple[Op, ...]
    scores: Value
    norms: tuple[Norm, ...]
    scales: tuple[Affine, ...]
    vectors: int
