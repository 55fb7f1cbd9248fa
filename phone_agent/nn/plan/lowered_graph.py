"""Lowered graph: the graph as the core computes it.

Batch normalizations and activations are fused into the layers before them; concatenations are views. There is no batch
size and no memory here: only which storages exist, which op writes them, and how consumers read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from phone_agent.core.ops import Act, Pooling
from phone_agent.nn.graph import BatchNorm, Conv, LocalResponseNorm


@dataclass(eq=False)
class Storage:
    """Rows of `channels` elements, `pixels` rows per image. May hold several values side by side."""

    name: str
    pixels: int
    channels: int
    writers: list[Op] = field(default_factory=list)


@dataclass(eq=False)
class Affine:
    """A scale and a shift per channel: 1 and 0 until a batch normalization writes its own."""

    channels: int
    offset: int = 0  # in the vectors: `channels` scales, then as many shifts


@dataclass(eq=False)
class Norm:
    """A batch normalization, and the channels of the affine that it fills."""

    name: str
    layer: BatchNorm
    channels: int
    affine: Affine
    start: int = 0
    offset: int = 0  # of mean and inv_std, in the vectors


@dataclass(eq=False)
class Value:
    """The output of a layer. Consumers read act(scale * stored + shift) if there is an affine; else act is stored."""

    name: str
    height: int
    width: int
    channels: int
    storage: Storage
    start: int = 0
    affine: Affine | None = None
    affine_start: int = 0
    norm: Norm | None = None
    act: Act = Act.NONE
    clamped_by: Act = Act.NONE  # an activation already applied: applying it again changes nothing
    producer: Op | None = None  # None: the image
    consumers: list[Op] = field(default_factory=list)
    needs_gradient: bool = False

    @property
    def pixels(self) -> int:
        return self.height * self.width

    @property
    def fills_storage(self) -> bool:
        return self.channels == self.storage.channels


class _OneInput:
    x: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


@dataclass(eq=False)
class ConvOp(_OneInput):
    """A convolution, or a dense layer: with `flatten` the whole image is one pixel with many channels.

    `trainable`: the weights or the bias are. Then the gradients of both are computed; otherwise of neither.
    """

    name: str
    layer: Conv
    weight: str
    bias: str | None
    x: Value
    y: Value
    flatten: bool = False
    trainable: bool = True

    @property
    def depthwise(self) -> bool:
        return not self.flatten and self.layer.is_depthwise((self.x.height, self.x.width, self.x.channels))


@dataclass(eq=False)
class BatchNormOp(_OneInput):
    """A batch normalization that no convolution precedes. y shares the storage of x and is only read differently."""

    name: str
    norm: Norm
    x: Value
    y: Value


@dataclass(eq=False)
class AddOp:
    """y = act(a + b), stored. Without b: a copy of a, as its consumers read it."""

    name: str
    a: Value
    b: Value | None
    y: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.a,) if self.b is None else (self.a, self.b)


@dataclass(eq=False)
class PoolOp(_OneInput):
    name: str
    pooling: Pooling
    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]
    count_padding: bool
    x: Value
    y: Value


@dataclass(eq=False)
class LrnOp(_OneInput):
    name: str
    layer: LocalResponseNorm
    x: Value
    y: Value


@dataclass(eq=False)
class DropoutOp(_OneInput):
    name: str
    rate: float
    salt: int
    x: Value
    y: Value


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
    """Ops in execution order. `vector_floats` hold all scales, shifts, means and inverse deviations."""

    image: Value
    ops: tuple[Op, ...]
    scores: Value
    norms: tuple[Norm, ...]
    affines: tuple[Affine, ...]
    vector_floats: int
