"""Recipes are data: they name what exists, flags go before them, and rates follow the batch."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from orchestrator.launch.recipes import RECIPES, learning_rate, settled
from orchestrator.launch.request import LaunchRequest, Span
from orchestrator.launch.run_spec import check_request, plan_run
from phone_agent import models
from phone_agent.contract.schema import DataSpec
from tests.orchestrator.launch.samples import phones

IMAGENET = DataSpec("imagenet", 1281167, (224, 224, 3), 1000)
CIFAR = DataSpec("cifar10", 50000, (32, 32, 3), 10)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_name_what_there_is(name: str) -> None:
    request = LaunchRequest(recipe=name)
    check_request(request)
    values = RECIPES[name].values
    assert set(values) <= {each.name for each in fields(LaunchRequest)}
    assert {"model", "global_batch", "learning_rate"} <= set(values)
    assert values["model"] in models.NAMES


def test_the_papers_recipe_is_the_papers() -> None:
    planned = plan_run(LaunchRequest(recipe="googlenet-imagenet"), phones(46), IMAGENET)
    assert {rank.batch for rank in planned.ranks} == {16}
    assert (planned.model, planned.global_batch, planned.steps) == ("googlenet", 736, 96000)
    rules = planned.optimizer
    assert (rules.learning_rate, rules.weight_decay, planned.schedule.policy) == (0.01, 0.0002, "step")


def test_flags_go_before_the_recipe() -> None:
    request = LaunchRequest(recipe="cifar10", optimizer="sgd", steps=10, batch=64, learning_rate=0.3)
    planned = plan_run(request, phones(2), CIFAR)
    assert (planned.steps, planned.global_batch) == (10, 128)
    assert (planned.optimizer.name, planned.optimizer.learning_rate) == ("sgd", 0.3)
    assert planned.optimizer.weight_decay == 5e-4
    assert planned.schedule.warmup_steps == round(50000 / 128)


def test_rates_are_scaled_with_the_batch_unless_given() -> None:
    request = LaunchRequest(recipe="resnet50-imagenet")
    assert learning_rate(request, 256) == pytest.approx(0.1)
    assert learning_rate(request, 8192) == pytest.approx(3.2)
    assert learning_rate(replace(request, learning_rate=0.2), 8192) == 0.2


def test_settling_twice_changes_nothing() -> None:
    once = settled(LaunchRequest(recipe="cifar10", warmup=Span(7)))
    assert settled(once) == once
    assert once.warmup == Span(7)
