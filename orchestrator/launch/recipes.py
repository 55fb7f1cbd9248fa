"""Training recipes as published, by name. What a flag says goes before what a recipe says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.launch.request import LaunchRequest, Span


@dataclass(frozen=True)
class Recipe:
    """`values` are fields of a LaunchRequest. Its learning rate is for its global batch, and scaled for others."""

    about: str
    values: Mapping[str, Any]


def _epochs(count: float) -> Span:
    return Span(count, epochs=True)


_RESIDUAL: dict[str, Any] = {
    "epochs": 90.0,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "augment": "imagenet",
    "warmup": _epochs(5),
}
_CIFAR: dict[str, Any] = {
    "global_batch": 128,
    "optimizer": "nesterov",
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "augment": "cifar",
    "schedule": "cosine",
    "warmup": _epochs(1),
    "epochs": 30.0,
}

RECIPES: dict[str, Recipe] = {
    "googlenet-imagenet": Recipe(
        "Na et al., 2021, on phones: 59.6 % top-1. How often the rate falls they do not say: as Caffe's GoogLeNet.",
        {
            "model": "googlenet",
            "global_batch": 736,
            "steps": 96000,
            "optimizer": "sgd",
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 2e-4,
            "augment": "imagenet",
            "schedule": "step",
            "step_every": _epochs(8),
            "gamma": 0.96,
        },
    ),
    "resnet50-imagenet": Recipe(
        "Goyal et al., 2017: 0.1 for every 256 images after a rise of 5 epochs, a tenth each 30.",
        {
            **_RESIDUAL,
            "model": "resnet50",
            "global_batch": 256,
            "optimizer": "nesterov",
            "learning_rate": 0.1,
            "schedule": "step",
            "step_every": _epochs(30),
            "gamma": 0.1,
        },
    ),
    "resnet50-imagenet-lars": Recipe(
        "For batches of thousands: LARS (You et al., 2017), falling with the square, labels smoothed.",
        {
            **_RESIDUAL,
            "model": "resnet50",
            "global_batch": 8192,
            "optimizer": "lars",
            "learning_rate": 8.0,
            "trust": 0.001,
            "weight_decay": 5e-5,
            "schedule": "polynomial",
            "power": 2.0,
            "label_smoothing": 0.1,
        },
    ),
    "mobilenet-imagenet": Recipe(
        "MobileNet-v1 with momentum: little decay, a cosine, labels smoothed.",
        {
            **_RESIDUAL,
            "model": "mobilenet_v1",
            "global_batch": 256,
            "optimizer": "nesterov",
            "learning_rate": 0.1,
            "weight_decay": 4e-5,
            "schedule": "cosine",
            "label_smoothing": 0.1,
        },
    ),
    "cifar10": Recipe("ResNet-20 on CIFAR-10 in 30 epochs.", {**_CIFAR, "model": "resnet20"}),
    "cifar10-lars": Recipe(
        "The same in large batches, by LARS.",
        {
            **_CIFAR,
            "model": "resnet20",
            "global_batch": 1024,
            "optimizer": "lars",
            "learning_rate": 1.6,
            "trust": 0.02,
            "warmup": _epochs(5),
        },
    ),
    "mentee-cifar10": Recipe(
        "The network of Chen et al. (2019), which has no normalisation: batches of 128, small steps.",
        {**_CIFAR, "model": "mentee", "learning_rate": 0.01},
    ),
    "mobilenet-cifar10": Recipe(
        "Chen et al.'s reduced MobileNet, in batches of 128.", {**_CIFAR, "model": "mobilenet_reduced"}
    ),
    "resnet-cifar10": Recipe("Chen et al.'s reduced ResNet, in batches of 128.", {**_CIFAR, "model": "resnet_reduced"}),
}

_EITHER = ({"steps", "epochs"}, {"batch", "global_batch"})  # saying one of them unsays the other
_DEFAULTS: dict[str, Any] = {"model": "lenet", "momentum": 0.9}
DEFAULT_RATE = 0.02


def recipe(name: str) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]
    listed = "".join(f"\n  {each}: {known.about}" for each, known in RECIPES.items())
    close = get_close_matches(name, RECIPES, 1)
    raise UsageError(
        f"no recipe '{name}'; there is:{listed}", remedy=f"--recipe {close[0] if close else next(iter(RECIPES))}"
    )


def settled(request: LaunchRequest) -> LaunchRequest:
    """With what the recipe adds to the flags, and the defaults to both; but for a rate that hangs on the batch."""
    explicit = {each.name for each in fields(request) if getattr(request, each.name) is not None}
    for either in _EITHER:
        explicit |= either if explicit & either else set()
    offered = {**_DEFAULTS, **(recipe(request.recipe).values if request.recipe else {})}
    offered.pop("learning_rate", None)
    return replace(request, **{name: value for name, value in offered.items() if name not in explicit})


def learning_rate(request: LaunchRequest, global_batch: int) -> float:
    """What was asked for; or the recipe's, by the linear scaling rule."""
    from phone_agent.api.training import scaled

    if request.learning_rate is not None:
        return request.learning_rate
    if request.recipe is None:
        return DEFAULT_RATE
    values = recipe(request.recipe).values
    return scaled(values["learning_rate"], values["global_batch"], global_batch)
