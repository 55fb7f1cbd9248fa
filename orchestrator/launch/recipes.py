"""Published training recipes, by name. Explicit flags override the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from orchestrator.errors import UsageError


@dataclass(frozen=True)
class Recipe:
    """`options`: of a LaunchRequest, by path. The learning rate is for the recipe's global batch; others scale it."""

    about: str
    options: Mapping[str, Any]


_IMAGENET: dict[str, Any] = {
    "epochs": 90.0,
    "data.augment": "imagenet",
    "optimizer.momentum": 0.9,
    "optimizer.weight_decay": 1e-4,
    "schedule.warmup_epochs": 5.0,
}
_CIFAR: dict[str, Any] = {
    "epochs": 30.0,
    "global_batch": 128,
    "data.augment": "cifar",
    "optimizer.name": "nesterov",
    "optimizer.learning_rate": 0.1,
    "optimizer.momentum": 0.9,
    "optimizer.weight_decay": 5e-4,
    "schedule.policy": "cosine",
    "schedule.warmup_epochs": 1.0,
}

RECIPES: dict[str, Recipe] = {
    "googlenet-imagenet": Recipe(
        "Na et al., 2021, on phones: 59.6 % top-1. Decay interval (not published): from Caffe's GoogLeNet.",
        {
            "model": "googlenet",
            "global_batch": 736,
            "steps": 96000,
            "data.augment": "imagenet",
            "optimizer.name": "sgd",
            "optimizer.learning_rate": 0.01,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": 2e-4,
            "schedule.policy": "step",
            "schedule.decay_epochs": 8.0,
            "schedule.gamma": 0.96,
        },
    ),
    "resnet50-imagenet": Recipe(
        "Goyal et al., 2017: learning rate 0.1 per 256 images, 5 epochs of warm-up, divided by 10 every 30 epochs.",
        {
            **_IMAGENET,
            "model": "resnet50",
            "global_batch": 256,
            "optimizer.name": "nesterov",
            "optimizer.learning_rate": 0.1,
            "schedule.policy": "step",
            "schedule.decay_epochs": 30.0,
            "schedule.gamma": 0.1,
        },
    ),
    "resnet50-imagenet-lars": Recipe(
        "For batches of thousands: LARS (You et al., 2017), quadratic decay, label smoothing.",
        {
            **_IMAGENET,
            "model": "resnet50",
            "global_batch": 8192,
            "optimizer.name": "lars",
            "optimizer.learning_rate": 8.0,
            "optimizer.lars_coefficient": 0.001,
            "optimizer.weight_decay": 5e-5,
            "optimizer.label_smoothing": 0.1,
            "schedule.policy": "polynomial",
            "schedule.power": 2.0,
        },
    ),
    "mobilenet-imagenet": Recipe(
        "MobileNet-v1 with momentum: small weight decay, cosine schedule, label smoothing.",
        {
            **_IMAGENET,
            "model": "mobilenet_v1",
            "global_batch": 256,
            "optimizer.name": "nesterov",
            "optimizer.learning_rate": 0.1,
            "optimizer.weight_decay": 4e-5,
            "optimizer.label_smoothing": 0.1,
            "schedule.policy": "cosine",
        },
    ),
    "cifar10": Recipe("ResNet-20 on CIFAR-10 in 30 epochs.", {**_CIFAR, "model": "resnet20"}),
    "cifar10-lars": Recipe(
        "ResNet-20 on CIFAR-10 in large batches with LARS.",
        {
            **_CIFAR,
            "model": "resnet20",
            "global_batch": 1024,
            "optimizer.name": "lars",
            "optimizer.learning_rate": 1.6,
            "optimizer.lars_coefficient": 0.02,
            "schedule.warmup_epochs": 5.0,
        },
    ),
    "mentee-cifar10": Recipe(
        "The network of Chen et al. (2019), which has no normalization: batch 128, small learning rate.",
        {**_CIFAR, "model": "mentee", "optimizer.learning_rate": 0.01},
    ),
    "mobilenet-cifar10": Recipe(
        "The reduced MobileNet of Chen et al. (2019), batch 128.", {**_CIFAR, "model": "mobilenet_reduced"}
    ),
    "resnet-cifar10": Recipe(
        "The reduced ResNet of Chen et al. (2019), batch 128.", {**_CIFAR, "model": "resnet_reduced"}
    ),
}


def get_recipe(name: str) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]
    listed = "".join(f"\n  {each}: {known.about}" for each, known in RECIPES.items())
    close = get_close_matches(name, RECIPES, 1)
    raise UsageError(
        f"unknown recipe '{name}'; available recipes:{listed}",
        remedy=f"--recipe {close[0] if close else next(iter(RECIPES))}",
    )
