"""Forecasts for racks that do not exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory import load
from orchestrator.plan.forecast import published
from orchestrator.plan.forecast.device_model import load_phone_model
from orchestrator.plan.forecast.forecast import (
    TARGET_EFFICIENCY,
    RackModel,
    TrainingSetup,
    forecast,
    rack_from_inventory,
    uniform_rack,
)
from phone_agent.api.forecast import gradient_count
from phone_agent.comm.autotune import BUCKET_SIZES
from phone_agent.models import build
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options

GRAPH, PHONE = build("squeezenet_v1_1"), load_phone_model()
PAPER_RACK = uniform_rack(138, 3, "1gbit", "1gbit")
SMALL_BATCH = TrainingSetup(batch=8)


def test_inventory_of_the_repository_is_the_rack_of_the_paper() -> None:
    cluster = load(Path(__file__).parents[4] / "inventory.yaml")
    assert rack_from_inventory(cluster, cluster.phones) == PAPER_RACK
    assert PAPER_RACK.phones == published.PHONES


def test_single_phone_waits_only_for_its_own_updates() -> None:
    alone = forecast(GRAPH, uniform_rack(1, 1, "1gbit", "1gbit"), PHONE, SMALL_BATCH)
    assert alone.communication_s == pytest.approx(PHONE.background_update_s(gradient_count(GRAPH)))
    assert alone.compute_s < alone.step_s < alone.compute_s + alone.communication_s


def test_more_phones_are_faster_but_less_efficient() -> None:
    few, many = (forecast(GRAPH, uniform_rack(count, 1, "1gbit", "1gbit"), PHONE, SMALL_BATCH) for count in (4, 40))
    assert few.efficiency > many.efficiency
    assert many.images_per_s > few.images_per_s


def test_overlap_hides_communication() -> None:
    overlapped, sequential = (
        forecast(GRAPH, PAPER_RACK, PHONE, replace(SMALL_BATCH, overlap=on)) for on in (True, False)
    )
    assert overlapped.compute_s == sequential.compute_s
    total = sequential.compute_s + sequential.communication_s
    assert overlapped.step_s < sequential.step_s == pytest.approx(total)


def test_efficient_batch_is_the_smallest() -> None:
    enough = forecast(GRAPH, PAPER_RACK, PHONE, replace(SMALL_BATCH, algorithm="auto")).efficient_batch
    assert enough is not None
    at, below = (
        forecast(GRAPH, PAPER_RACK, PHONE, replace(SMALL_BATCH, algorithm="auto", batch=batch))
        for batch in (enough, enough - 1)
    )
    assert at.efficiency >= TARGET_EFFICIENCY > below.efficiency


def test_max_batch_fits_in_memory() -> None:
    found = forecast(GRAPH, PAPER_RACK, PHONE, TrainingSetup(memory_bytes=500_000_000))
    assert found.batch == found.max_batch
    # at least weights, momentum and gradients; at most in-memory checkpoints as well
    assert estimate_memory(GRAPH, found.max_batch, Options(threads=4)).total < 500_000_000
    assert estimate_memory(GRAPH, found.max_batch + 8, Options(threads=4, moments=5)).total > 500_000_000


def test_measured_speed_overrides_the_phone_model() -> None:
    found = forecast(GRAPH, PAPER_RACK, PHONE, replace(SMALL_BATCH, images_per_s=2.0))
    assert found.compute_s == pytest.approx(8 / 2.0)


@pytest.mark.parametrize(("asked", "named"), [({"wire": "powersgd"}, "PowerSGD"), ({"algorithm": "mpi"}, "mpi")])
def test_unmodeled_options_fail(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        forecast(GRAPH, PAPER_RACK, PHONE, replace(SMALL_BATCH, **asked))


def test_networks_of_the_paper_reach_95_percent_efficiency() -> None:
    """On its rack, in the memory of its phones. Small networks only: the deep ones take a second each."""
    for name in ("mobilenet_v2", "squeezenet_v1_0", "alexnet"):
        found = forecast(build(name), PAPER_RACK, PHONE, TrainingSetup())
        assert found.efficiency > TARGET_EFFICIENCY, name


@pytest.mark.parametrize(("name", "batch"), [("mobilenet_v2", 64), ("alexnet", 32)])
@pytest.mark.parametrize("rack", [PAPER_RACK, uniform_rack(16, 1, "1gbit", "1gbit")])
def test_bucket_size_is_about_as_good_as_the_best(name: str, batch: int, rack: RackModel) -> None:
    """A run chooses the bucket size by a heuristic and an estimate of its compute speed. In these cases compute and
    communication differ a lot; where they are equal, the heuristic is off by up to eight points."""
    graph, setup = build(name), TrainingSetup(batch=batch)
    chosen = forecast(graph, rack, PHONE, setup)
    fixed = replace(setup, algorithm=chosen.collective.algorithm, group_size=chosen.collective.group)
    best = max(forecast(graph, rack, PHONE, replace(fixed, bucket_bytes=size)).efficiency for size in BUCKET_SIZES)
    assert chosen.efficiency > best - 0.02
