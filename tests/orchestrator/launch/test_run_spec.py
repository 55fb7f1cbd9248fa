"""From a resolved request and phones to a run spec."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.launch.dataset import Dataset
from orchestrator.launch.request import LaunchRequest
from orchestrator.launch.resolve import build_graph, resolve
from orchestrator.launch.run_spec import build_run_spec, cautions
from orchestrator.records.record import RUN_ID
from phone_agent.backends.opencl.memory_estimate import ADRENO_640
from phone_agent.contract.schema import (
    CommunicationSpec,
    ComputeSpec,
    DataSpec,
    DeviceConfig,
    OptimizerSpec,
    RecoverySpec,
    RunSpec,
    ScheduleSpec,
)
from phone_agent.nn.plan.options import Options
from phone_agent.train.memory_budget import plan_memory
from tests.orchestrator.launch.samples import check, phones, plan

DATA = DataSpec("fashion-mnist", 60000, (28, 28, 1), 10)
CIFAR = replace(DATA, shape=(32, 32, 3))
IMAGENET = replace(DATA, shape=(224, 224, 3))


def test_ranks_follow_the_phones_and_steps_the_epochs() -> None:
    spec = plan({"epochs": 2, "batch": 25}, phones(4, switches=2), DATA)
    assert [rank.phone for rank in spec.ranks] == ["p1-01", "p1-02", "p2-01", "p2-02"]
    assert [rank.rank for rank in spec.ranks] == [0, 1, 2, 3]
    assert spec.steps == 1200
    assert spec.global_batch == 100


@pytest.mark.parametrize("batch", ["auto", 1])
def test_dataset_with_fewer_samples_than_phones_fails(batch: int | str) -> None:
    few = replace(DATA, samples=3)
    with pytest.raises(UsageError, match="3 samples for 4 phones"):
        plan({"batch": batch, "compute.memory_bytes": 10**9}, phones(4), few)


@pytest.mark.parametrize(
    ("options", "flag"), [({"batch": 1}, "--batch 1"), ({"batch": 8, "compute.micro_batch": 1}, "--micro-batch 1")]
)
def test_single_images_fail_if_batch_normalization_needs_two(options: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag}: mobilenet_v1 cannot be trained on single images"):
        plan({"model": "mobilenet_v1", **options}, phones(4), CIFAR)
    larger = replace(CIFAR, shape=(64, 64, 3))
    assert plan({"model": "mobilenet_v1", **options}, phones(4), larger).compute.min_micro_batch == 1


def test_global_batch_is_at_least_two_per_phone_if_batch_normalization_needs_it() -> None:
    with pytest.raises(UsageError, match="less than 2 images per phone"):
        plan({"model": "mobilenet_v1", "global_batch": 7}, phones(4), CIFAR)
    spec = plan({"model": "mobilenet_v1", "global_batch": 8}, phones(4), CIFAR)
    assert (spec.compute.min_micro_batch, [rank.batch for rank in spec.ranks]) == (2, [2] * 4)
    with pytest.raises(UsageError, match="7 samples for 4 phones: at least 2 per phone"):
        plan({"model": "mobilenet_v1", "batch": 2}, phones(4), replace(CIFAR, samples=7))


def test_run_ids_have_the_documented_form_and_differ() -> None:
    resolved = resolve(LaunchRequest(), dataset=Dataset(DATA))
    ids = {build_run_spec(resolved, phones(1), now=1769860800.0).run_id for _ in range(5)}
    assert all(RUN_ID.fullmatch(run_id) and run_id.startswith("20260131-120000-lenet-") for run_id in ids)
    assert len(ids) > 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"steps": 10, "schedule.warmup_steps": 9}, []),
        ({"recipe": "cifar10"}, []),
        ({"optimizer.name": "lars", "optimizer.learning_rate": 4.0}, []),
        ({"recipe": "cifar10-lars", "optimizer.name": "lars"}, []),
        ({"recipe": "cifar10-lars", "optimizer.name": "sgd", "optimizer.learning_rate": 0.4}, []),
        ({"recipe": "cifar10", "optimizer.name": "sgd"}, []),
        ({"recipe": "cifar10-lars", "epochs": 3}, ["warms up for 293 steps, but the run has only 176"]),
        ({"schedule.warmup_steps": 200}, ["warms up for 200 steps, but the run has only 200"]),
        (
            {"batch": 25, "steps": 100, "schedule.warmup_epochs": 1},
            ["warms up for 600 steps, but the run has only 100"],
        ),
    ],
)
def test_warm_up_longer_than_the_run_is_a_caution(options: dict[str, Any], expected: list[str]) -> None:
    check(options)
    found = cautions(plan(options, phones(4), CIFAR))
    assert len(found) == len(expected)
    assert all(words in line for words, line in zip(expected, found, strict=True))


def test_evaluation_without_test_samples_is_a_caution() -> None:
    (caution,) = cautions(plan({"eval_every": 5}, phones(4), DATA))
    assert caution.startswith(f"--eval-every 5 has no effect: {DATA.name} has no test samples")
    assert cautions(plan({"eval_every": 5}, phones(4), replace(DATA, test_samples=7))) == []
    assert cautions(plan({}, phones(4), DATA)) == [], "the evaluation at the end is skipped without a caution"


def test_batch_larger_than_the_samples_per_phone_fails() -> None:
    with pytest.raises(UsageError, match=f"only {DATA.samples // 4} samples per phone"):
        plan({"batch": DATA.samples // 4 + 1}, phones(4), DATA)
    assert plan({"batch": DATA.samples // 4}, phones(4), DATA).global_batch == DATA.samples // 4 * 4


def test_compute_options_are_passed_on() -> None:
    options = {"compute.backend": "reference", "compute.threads": 3, "compute.memory_bytes": 2_800_000_000}
    spec = plan(options, phones(2), DATA)
    assert spec.compute == ComputeSpec("reference", 3, 2_800_000_000)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_fp16_activations_allow_larger_batches() -> None:
    options = {"model": "resnet20", "batch": "auto", "compute.memory_bytes": 10**9}
    many = replace(CIFAR, samples=10**6)
    specs = [plan({**options, "compute.activations": each}, phones(2), many) for each in ("fp32", "fp16")]
    assert [spec.compute.activations for spec in specs] == ["fp32", "fp16"]
    assert specs[1].ranks[0].batch > 1.6 * specs[0].ranks[0].batch
    assert RunSpec.from_json(specs[1].to_json()) == specs[1]


def test_memory_limit_too_small_for_one_image_fails() -> None:
    small, ample = ({"batch": 64, "compute.memory_bytes": amount} for amount in (60_000_000, 2_800_000_000))
    words = r"--memory: lenet: one image needs .* of memory, the budget is 60 MB"
    with pytest.raises(UsageError, match=words) as error:
        plan(small, phones(2), DATA)
    assert error.value.remedy == "use a larger --memory, or choose a smaller model with --model"
    assert plan(ample, phones(2), DATA).compute.memory_bytes == 2_800_000_000
    assert plan({**small, "compute.backend": "reference"}, phones(2), DATA).compute.memory_bytes == 60_000_000


@pytest.mark.parametrize("size", [{"batch": 128}, {"global_batch": 512}])
def test_batch_that_fits_in_micro_batches_is_left_to_the_phones(size: dict[str, Any]) -> None:
    budget = 600_000_000
    spec = plan({"model": "mobilenet_v1", "compute.memory_bytes": budget, **size}, phones(4), IMAGENET)
    assert ({rank.batch for rank in spec.ranks}, spec.compute.memory_bytes) == ({128}, budget)
    graph = build_graph("mobilenet_v1", IMAGENET)
    _, at_once = plan_memory(graph, 128, Options(memory_bytes=budget), None)
    assert 1 < at_once.batch < 128


def test_durations_in_epochs_follow_the_batch() -> None:
    options = {
        "batch": 150,
        "epochs": 4,
        "schedule.policy": "step",
        "schedule.decay_epochs": 1.5,
        "schedule.warmup_steps": 20,
        "schedule.gamma": 0.5,
    }
    spec = plan(options, phones(4), DATA)
    assert spec.steps == 400
    assert spec.schedule == ScheduleSpec("step", warmup_steps=20, decay_steps=150, gamma=0.5)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (
            "optimizer",
            OptimizerSpec("lamb", 0.5, 0.8, 0.1, decay_all=True, beta2=0.9, epsilon=1e-3, label_smoothing=0.1),
        ),
        ("optimizer", OptimizerSpec("lars", 1.5, lars_coefficient=0.2)),
        ("schedule", ScheduleSpec("polynomial", 3, power=2.0, min_lr_ratio=0.1)),
        ("communication", CommunicationSpec("hierarchical", "fp16", overlap=False, group_size=3, bucket_bytes=1 << 20)),
        ("communication", CommunicationSpec(local_steps=4, outer_learning_rate=0.7, outer_momentum=0.9)),
        ("compute", ComputeSpec(micro_batch=8, load_balancing="off", threads=2, activations="fp16")),
        ("recovery", RecoverySpec(min_phones=1, max_restarts=3)),
    ],
)
def test_every_option_reaches_the_phones(group: str, expected: Any) -> None:
    default = vars(type(expected)())
    options = {f"{group}.{name}": value for name, value in vars(expected).items() if value != default[name]}
    spec = plan(options, phones(2), DATA)
    assert getattr(spec, group) == expected
    assert RunSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("every", "steps", "minutes"), [(5, 5, 0.0), (0, 0, 0.0), (timedelta(seconds=90), 0, 1.5), (None, 0, 10.0)]
)
def test_checkpoints_are_written_by_steps_or_by_time(every: int | timedelta | None, steps: int, minutes: float) -> None:
    options = {} if every is None else {"recovery.checkpoint_every": every}
    recovery = plan(options, phones(2), DATA).recovery
    assert (recovery.checkpoint_every, recovery.checkpoint_minutes) == (steps, minutes)


def test_largest_batch_follows_the_memory_of_each_phone() -> None:
    free = {"p1-01": 400_000_000, "p1-02": 800_000_000}
    spec = plan({"model": "lenet", "batch": "auto"}, phones(2), DATA, free_memory=free)
    small, large = (rank.batch for rank in spec.ranks)
    assert 1 < small < large <= DATA.samples // 2
    equal = plan({"batch": "auto", "compute.memory_bytes": 300_000_000}, phones(2), DATA)
    assert len({rank.batch for rank in equal.ranks}) == 1
    options = {"model": "alexnet", "batch": "auto", "compute.memory_bytes": 3_000_000_000}
    head, other, last = (rank.batch for rank in plan(options, phones(3), IMAGENET).ranks)
    assert head == last < other, "the first and the last phone write checkpoints"
    with pytest.raises(UsageError, match="does not report its free memory"):
        plan({"batch": "auto"}, phones(2), DATA)
    with pytest.raises(UsageError, match="one image needs"):
        plan({"batch": "auto", "compute.memory_bytes": 1_000_000}, phones(2), DATA)


def test_largest_batch_follows_the_backend() -> None:
    """With alexnet, whose large packed weights a GPU holds in addition; hybrid has two more copies."""
    gpus = {"p1-01": replace(ADRENO_640, compute_units=3)}
    options = {"model": "alexnet", "batch": "auto", "compute.memory_bytes": 3_000_000_000, "compute.threads": 4}

    def batch(backend: str, **facts: Any) -> int:
        return plan({**options, "compute.backend": backend}, phones(1), IMAGENET, gpus=gpus, **facts).ranks[0].batch

    cpu, gpu, both = (batch(name) for name in ("cpu", "opencl", "hybrid"))
    assert both < gpu < cpu
    assert batch("auto", devices={"p1-01": DeviceConfig("opencl")}) == gpu
    tight = {**options, "batch": 1, "compute.memory_bytes": 1_800_000_000}
    assert plan({**tight, "compute.backend": "cpu"}, phones(1), IMAGENET)
    with pytest.raises(UsageError, match="one image needs"):
        plan({**tight, "compute.backend": "hybrid"}, phones(1), IMAGENET)
