"""Recipes are data: they name options that exist, flags override them, and learning rates scale with the batch."""

from __future__ import annotations

import pytest

from orchestrator.launch.dataset import Dataset
from orchestrator.launch.recipes import RECIPES
from orchestrator.launch.request import make_request, option_paths
from orchestrator.launch.resolve import resolve
from orchestrator.launch.run_spec import scale_learning_rate
from phone_agent import models
from phone_agent.contract.schema import DataSpec
from tests.orchestrator.launch.samples import check, phones, plan

IMAGENET = DataSpec("imagenet", 1281167, (224, 224, 3), 1000)
CIFAR = DataSpec("cifar10", 50000, (32, 32, 3), 10)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_valid_options(name: str) -> None:
    check({"recipe": name})
    options = RECIPES[name].options
    check({path: value for path, value in options.items() if path != "recipe"})
    assert set(options) <= set(option_paths())
    assert {"model", "global_batch", "optimizer.name", "optimizer.learning_rate"} <= set(options)
    assert options["model"] in models.NAMES


def test_recipe_of_the_paper_matches_the_paper() -> None:
    spec = plan({"recipe": "googlenet-imagenet"}, phones(46), IMAGENET)
    assert {rank.batch for rank in spec.ranks} == {16}
    assert (spec.model, spec.global_batch, spec.steps) == ("googlenet", 736, 96000)
    optimizer = spec.optimizer
    assert (optimizer.learning_rate, optimizer.weight_decay, spec.schedule.policy) == (0.01, 0.0002, "step")


def test_flags_override_the_recipe() -> None:
    options = {"recipe": "cifar10", "optimizer.name": "sgd", "steps": 10, "batch": 64, "optimizer.learning_rate": 0.3}
    spec = plan(options, phones(2), CIFAR)
    assert (spec.steps, spec.global_batch) == (10, 128)
    assert (spec.optimizer.name, spec.optimizer.learning_rate) == ("sgd", 0.3)
    assert spec.optimizer.weight_decay == 5e-4
    assert spec.schedule.warmup_steps == round(50000 / 128)


@pytest.mark.parametrize(
    ("options", "batch", "rate"),
    [({}, 256, 0.1), ({}, 8192, 3.2), ({"optimizer.learning_rate": 0.2}, 8192, 0.2)],
)
def test_learning_rate_of_a_recipe_scales_with_the_batch(options: dict[str, float], batch: int, rate: float) -> None:
    resolved = resolve(make_request({"recipe": "resnet50-imagenet", **options}), dataset=Dataset(IMAGENET))
    assert scale_learning_rate(resolved, batch).learning_rate == pytest.approx(rate)
