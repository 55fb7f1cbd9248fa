"""Models by name: `build("resnet50", classes=10, shape=(32, 32, 3), width=0.5)`. One module per family.

Layers have the names of torchvision's modules, where it has the same or a similar network: see nn/weights.py.
A name such as `path/to/file.py:build` is a custom model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import isfinite
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.models import alexnet, custom, googlenet, inception_v3, lenet, mentee, mobilenet, resnet, squeezenet
from phone_agent.nn.graph import MAX_CHANNELS, Graph, GraphError, Shape

MAX_WIDTH = 16.0
MAX_IMAGE_SIDE = 1024
IMAGENET, CIFAR = (224, 224, 3), (32, 32, 3)


@dataclass(frozen=True)
class Model:
    """How a network is built, and the image shape and classes it was designed for."""

    build: Callable[[int, Shape, float], Graph]
    description: str
    shape: Shape = IMAGENET
    classes: int = 1000


MODELS: dict[str, Model] = {
    "alexnet": Model(alexnet.build, "Caffe's version: two groups, local response normalization"),
    "googlenet": Model(googlenet.build, "Caffe's inception modules, no batch normalization"),
    "inception_v3": Model(inception_v3.build, "factorized inception modules", (299, 299, 3)),
    "mobilenet_v1": Model(mobilenet.v1, "depthwise separable convolutions"),
    "mobilenet_v2": Model(mobilenet.v2, "inverted residuals, linear bottlenecks"),
    "resnet50": Model(resnet.resnet50, "bottleneck blocks, stride in the 3x3 convolution"),
    "resnet101": Model(resnet.resnet101, "bottleneck blocks, stride in the 3x3 convolution"),
    "resnet152": Model(resnet.resnet152, "bottleneck blocks, stride in the 3x3 convolution"),
    "squeezenet_v1_0": Model(squeezenet.v1_0, "fire modules, no dense layer"),
    "squeezenet_v1_1": Model(squeezenet.v1_1, "fire modules, pooled earlier: less than half the FLOPs of v1.0"),
    "mentee": Model(mentee.build, "five convolutions, three dense layers", CIFAR, 10),
    "mobilenet_reduced": Model(mobilenet.v1_reduced, "the first five blocks of MobileNet-v1", CIFAR, 10),
    "resnet_reduced": Model(resnet.reduced, "wide ResNet (x10) with six convolutions", CIFAR, 10),
    "lenet": Model(lenet.build, "Caffe's version: two convolutions, two dense layers", (28, 28, 1), 10),
    "resnet20": Model(resnet.resnet20, "three stages of three basic blocks", CIFAR, 10),
}
NAMES = tuple(MODELS)


class UnknownModelError(AgentError):
    """The message suggests a similar name, or lists all models."""

    code = ErrorCode.UNKNOWN_MODEL

    def __init__(self, name: str) -> None:
        meant = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"choose from: {', '.join(NAMES)}"
        super().__init__(f"unknown model '{name}'; {hint}")


def model(name: str) -> Model:
    if custom.is_custom(name):
        return _custom_model(name)
    if name not in MODELS:
        raise UnknownModelError(name)
    return MODELS[name]


def build(
    name: str, classes: int | None = None, shape: Sequence[int] | None = None, width: float | None = None
) -> Graph:
    """Defaults are as published. `width` multiplies the channels of every layer except the last."""
    published = model(name)
    classes = published.classes if classes is None else classes
    shape = published.shape if shape is None else tuple(shape)
    width = 1.0 if width is None else width
    if not 1 <= classes <= MAX_CHANNELS:
        raise GraphError(f"{name}: {classes} classes; 1 to {MAX_CHANNELS} are supported")
    if not (isfinite(width) and 0 < width <= MAX_WIDTH):
        raise GraphError(f"{name}: width {width:g}: it must be greater than 0 and at most {MAX_WIDTH:g}")
    if len(shape) != 3 or min(shape) < 1:
        raise GraphError(f"{name}: image shape {shape}: it must be (height, width, channels), all at least 1")
    return _build(name, published, classes, shape, width)


def _custom_model(name: str) -> Model:
    found = custom.load(name)

    def build_it(classes: int, shape: Shape, width: float) -> Graph:
        if width != 1.0:
            raise GraphError(f"{name}: custom models do not support width")
        return found.build(classes, shape)

    return Model(build_it, "custom model", *_designed_for(found.defaults))


def _designed_for(defaults: Mapping[str, Any]) -> tuple[Shape, int]:
    """Shape and classes from the default arguments of the build function; other values, such as None, are ignored."""
    shape, classes = defaults.get("shape", CIFAR), defaults.get("classes", 10)
    if not isinstance(shape, tuple | list) or len(shape) != 3 or not all(type(side) is int for side in shape):
        shape = CIFAR
    return tuple(shape), classes if type(classes) is int else 10


def image_shape(name: str, given: str | None) -> Shape | None:
    """Parse '64', '64x48' or '64x48x1'. Channels default to those of the published model."""
    published = model(name).shape
    if given is None:
        return None
    parts = given.lower().split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 3:
        raise GraphError(
            f"invalid image size '{given}': use a side length (64), HEIGHTxWIDTH, or HEIGHTxWIDTHxCHANNELS"
        )
    sides = [int(part) for part in parts]
    square = sides * 2 if len(sides) == 1 else sides
    return (*square, published[2])[:3]


def _build(name: str, model: Model, classes: int, shape: Shape, width: float) -> Graph:
    try:
        return replace(model.build(classes, shape, width), name=name)
    except custom.CustomModelError:
        raise
    except GraphError as error:
        smallest = _smallest(model, classes, shape[2], width)
        hint = f"; the smallest supported image is {smallest}x{smallest}" if smallest else ""
        size = "x".join(map(str, shape))
        raise GraphError(f"{name} does not support {size} images: {error}{hint}") from None


def _smallest(model: Model, classes: int, channels: int, width: float) -> int | None:
    """Binary search: a network that fits a small image fits a larger one."""
    small, large = 0, MAX_IMAGE_SIDE
    while large - small > 1:
        middle = (small + large) // 2
        try:
            model.build(classes, (middle, middle, channels), width)
            large = middle
        except GraphError:
            small = middle
    return large if large < MAX_IMAGE_SIDE else None
