"""Options that cannot work are refused before a phone is involved; each option is decided once."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.launch.dataset import Dataset
from orchestrator.launch.defaults import DEFAULTS, DESCRIPTIONS
from orchestrator.launch.request import LaunchRequest, given_options, make_request, option_paths
from orchestrator.launch.resolve import Duration, merge_options, resolve
from phone_agent.contract.schema import (
    CommunicationSpec,
    ComputeSpec,
    DataSpec,
    OptimizerSpec,
    RecoverySpec,
    ScheduleSpec,
)
from tests.orchestrator.launch.samples import check

DATA = Dataset(DataSpec("fashion-mnist", 60000, (28, 28, 1), 10))
INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "resnet999"}, "unknown model 'resnet999'; did you mean"),
        ({"communication.algorithm": "carrier-pigeon"}, "--algorithm carrier-pigeon: .*ring, hierarchical, mpi"),
        ({"communication.wire": "morse"}, "--wire morse: .*fp32, fp16, bf16, int8, powersgd"),
        ({"communication.wire": "int8", "communication.algorithm": "mpi"}, "sends fp32 only"),
        ({"communication.group_size": 2, "communication.algorithm": "ring"}, "ring has no groups"),
        ({"communication.bucket_bytes": 65535}, "--bucket-size of 65535 bytes"),
        ({"optimizer.name": "adam"}, "--optimizer adam: .*sgd, nesterov, lars, lamb"),
        ({"optimizer.name": "lamb", "optimizer.learning_rate": 0.1, "optimizer.epsilon": 0.0}, "epsilon"),
        ({"optimizer.name": "lamb", "optimizer.epsilon": INFINITE}, "--epsilon inf: must be finite"),
        ({"communication.outer_learning_rate": INFINITE}, "--outer-lr inf: must be finite"),
        ({"optimizer.momentum": NAN}, "--momentum nan: must be finite"),
        ({"schedule.policy": "triangle"}, "--schedule triangle: .*constant, step, polynomial, cosine"),
        ({"schedule.policy": "step"}, "number of steps"),
        ({"schedule.policy": "step", "schedule.decay_steps": 0}, "--decay-steps 0: "),
        ({"recipe": "resnet50-imagenet", "schedule.decay_epochs": 0.0}, "--decay-epochs 0: "),
        (
            {"schedule.decay_steps": 1, "schedule.decay_epochs": 1.0},
            "--decay-steps and --decay-epochs cannot be combined",
        ),
        ({"data.on_corrupt": "weep"}, "--on-corrupt weep: .*fail, skip"),
        ({"data.augment": "imagnet"}, "--augment imagnet: .*none, flip, cifar, imagenet"),
        ({"recipe": "googlenet"}, "googlenet-imagenet: Na et al."),
        ({"schedule.warmup_epochs": INFINITE}, "--warmup-epochs inf: must be finite"),
        ({"compute.backend": "abacus"}, "--backend abacus: .*auto, cpu, opencl, hybrid, reference"),
        ({"compute.load_balancing": "by ear"}, "--load-balancing by ear: .*auto, off"),
        ({"compute.activations": "fp16", "compute.backend": "reference"}, "--activations fp16: the reference backend"),
        ({"steps": 1, "epochs": 1}, "--steps and --epochs cannot be combined"),
        ({"batch": 1, "global_batch": 1}, "--batch and --global-batch cannot be combined"),
        ({"optimizer.name": "lars"}, "--optimizer lars needs --lr: the default rate 0.02 is for sgd"),
        ({"optimizer.name": "lamb"}, "--optimizer lamb needs --lr"),
        ({"optimizer.name": "lars", "recipe": "cifar10"}, "needs --lr: the rate of recipe cifar10 is for nesterov"),
        (
            {"optimizer.name": "lamb", "recipe": "cifar10-lars"},
            "the rate of recipe cifar10-lars is for lars",
        ),
        ({"optimizer.name": "sgd", "recipe": "cifar10-lars"}, "sgd needs --lr: the rate of recipe cifar10-lars"),
        ({"steps": 500, "schedule.warmup_steps": 500}, "--warmup-steps 500 in a run of 500 steps: .* never end"),
        ({"epochs": 3, "schedule.warmup_epochs": 5}, "--warmup-epochs 5 in a run of 3 epochs: "),
        ({"recipe": "cifar10-lars", "epochs": 3, "schedule.warmup_epochs": 4}, "--warmup-epochs 4 in a run of 3"),
        ({"epochs": INFINITE}, "--epochs inf: must be finite"),
        ({"optimizer.learning_rate": INFINITE}, "--lr inf: must be finite"),
        ({"steps": 10**24}, "more than 1000000000 steps"),
        ({"epochs": 1e300}, "more than 1000000000 steps or epochs"),
    ],
)
def test_invalid_options_fail(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check(options)


@pytest.mark.parametrize(
    ("options", "words", "remedy"),
    [
        ({"schedule.gamma": 0.5}, "--gamma has no effect with --schedule constant", "--schedule step, or leave out"),
        ({"recipe": "cifar10", "schedule.gamma": 0.5}, "--gamma has no effect with --schedule cosine", "step, or"),
        ({"schedule.decay_steps": 9}, "--decay-steps has no effect with --schedule constant", "--schedule step, "),
        ({"schedule.decay_epochs": 9.0}, "--decay-epochs has no effect with --schedule constant", "--schedule step, "),
        ({"schedule.policy": "cosine", "schedule.power": 2.0}, "--power has no effect with --schedule cosine", "polyn"),
        (
            {"schedule.policy": "step", "schedule.decay_steps": 9, "schedule.min_lr_ratio": 0.0},
            "--min-lr-ratio has no effect with --schedule step",
            "--schedule polynomial or cosine, or leave out --min-lr-ratio",
        ),
        ({"optimizer.lars_coefficient": 0.1}, "--lars-coefficient has no effect with --optimizer sgd", "lars, or"),
        ({"optimizer.name": "nesterov", "optimizer.epsilon": 0.1}, "--epsilon has no effect with --optimizer", "lamb"),
        ({"optimizer.beta2": 0.9}, "--beta2 has no effect with --optimizer sgd", "--optimizer lamb"),
        ({"communication.outer_learning_rate": 0.7}, "--outer-lr has no effect without --local-steps", "--local-steps"),
        ({"communication.outer_momentum": 0.9}, "--outer-momentum has no effect without --local-steps", "leave out"),
        ({"new_head": True}, "--new-head has no effect without --weights", "--weights FILE"),
        ({"new_head": False}, "--keep-head has no effect without --weights", "--weights FILE"),
    ],
)
def test_flags_without_effect_fail(options: dict[str, Any], words: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        check(options)
    assert remedy in (error.value.remedy or "")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"recipe": "resnet50-imagenet", "schedule.policy": "cosine", "schedule.min_lr_ratio": 0.01},
        {
            "recipe": "resnet50-imagenet-lars",
            "optimizer.name": "sgd",
            "optimizer.learning_rate": 0.1,
            "schedule.policy": "constant",
        },
        {"recipe": "cifar10-lars", "optimizer.lars_coefficient": 0.01},
        {"schedule.policy": "step", "schedule.decay_steps": 9, "schedule.gamma": 0.5},
        {
            "optimizer.name": "lamb",
            "optimizer.learning_rate": 0.005,
            "optimizer.epsilon": 1e-3,
            "optimizer.beta2": 0.9,
        },
        {
            "communication.local_steps": 4,
            "communication.outer_learning_rate": 0.7,
            "communication.outer_momentum": 0.9,
        },
    ],
)
def test_unused_options_of_a_recipe_are_ignored(options: dict[str, Any]) -> None:
    check(options)


def test_options_are_resolved_to_the_defaults_of_the_run_spec() -> None:
    resolved = resolve(LaunchRequest(), dataset=DATA)
    assert (resolved.model, resolved.length, resolved.batch) == ("lenet", Duration(200), 32)
    assert (resolved.optimizer, resolved.schedule) == (OptimizerSpec(), ScheduleSpec())
    assert (resolved.communication, resolved.compute, resolved.recovery) == (
        CommunicationSpec(),
        ComputeSpec(),
        RecoverySpec(),
    )


def test_every_option_has_a_default_or_is_optional() -> None:
    optional = {
        "recipe",
        "weights",
        "new_head",
        "epochs",
        "global_batch",
        "data.replicated",
        "schedule.warmup_epochs",
        "schedule.decay_epochs",
        "recovery.spares",
    }
    assert set(DEFAULTS) | optional == set(option_paths())
    assert not set(DEFAULTS) & optional
    assert set(DESCRIPTIONS) <= set(option_paths())


def test_explicit_options_override_the_recipe_and_it_the_defaults() -> None:
    merged = merge_options({"recipe": "cifar10", "steps": 10, "batch": 64, "schedule.warmup_steps": 7})
    assert (merged["steps"], merged["batch"], merged["schedule.warmup_steps"]) == (10, 64, 7)
    assert not {"epochs", "global_batch", "schedule.warmup_epochs"} & merged.keys()
    assert (merged["model"], merged["optimizer.name"]) == ("resnet20", "nesterov")
    assert merged["communication.algorithm"] == "auto"


def test_merging_merged_options_changes_nothing() -> None:
    once = merge_options({"recipe": "cifar10", "schedule.warmup_steps": 7})
    assert merge_options(once) == once


def test_options_by_path_make_a_request_and_back() -> None:
    options = {"model": "lenet", "seed": 0, "optimizer.name": "sgd", "data.replicated": False}
    assert given_options(make_request(options)) == options


def test_network_that_does_not_take_the_images_fails() -> None:
    with pytest.raises(UsageError, match=r"alexnet does not support 28x28x1 images: layer .*the smallest supported"):
        resolve(make_request({"model": "alexnet"}), dataset=DATA)
