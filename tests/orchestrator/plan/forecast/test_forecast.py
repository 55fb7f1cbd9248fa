"""Racks that are nowhere: what follows for a network from its plan, a phone and a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory import load
from orchestrator.plan.forecast import published
from orchestrator.plan.forecast.device_model import phone
from orchestrator.plan.forecast.forecast import WANTED, Rack, Rules, forecast, imagined, rack_of
from phone_agent.comm.autotune import BUCKET_SIZES
from phone_agent.models import build
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.options import Options

GRAPH = build("squeezenet_v1_1")
FAR = imagined(138, 3, "1gbit", "1gbit")
LEAN = Rules(batch=8)


def test_the_papers_rack_is_the_inventory_that_comes_with_it() -> None:
    cluster = load(Path(__file__).parents[4] / "inventory.yaml")
    assert rack_of(cluster, cluster.phones) == FAR
    assert FAR.phones == published.PHONES


def test_one_phone_waits_for_its_own_updates_only() -> None:
    alone = forecast(GRAPH, imagined(1, 1, "1gbit", "1gbit"), phone(), LEAN)
    assert alone.communication_s == pytest.approx(phone().update_beside(GRAPH.parameter_count))
    assert alone.compute_s < alone.step_s < alone.compute_s + alone.communication_s


def test_more_phones_wait_longer_and_sum_faster_than_few() -> None:
    few, many = (forecast(GRAPH, imagined(count, 1, "1gbit", "1gbit"), phone(), LEAN) for count in (4, 40))
    assert few.efficiency > many.efficiency
    assert many.images_per_s > few.images_per_s


def test_overlap_hides_what_would_be_waited_for() -> None:
    beside, after = (forecast(GRAPH, FAR, phone(), replace(LEAN, overlap=way)) for way in (True, False))
    assert beside.compute_s == after.compute_s
    assert beside.step_s < after.step_s == pytest.approx(after.compute_s + after.communication_s)


def test_the_fewest_images_that_are_enough_are_enough_and_one_less_is_not() -> None:
    enough = forecast(GRAPH, FAR, phone(), replace(LEAN, algorithm="auto")).enough
    assert enough is not None
    at, below = (
        forecast(GRAPH, FAR, phone(), replace(LEAN, algorithm="auto", batch=batch)) for batch in (enough, enough - 1)
    )
    assert at.efficiency >= WANTED > below.efficiency


def test_what_fits_fits() -> None:
    found = forecast(GRAPH, FAR, phone(), Rules(memory_bytes=500_000_000))
    assert found.batch == found.fits
    # values, momentum and gradient at the least; what is kept beside them besides
    assert estimate_memory(GRAPH, found.fits, Options(threads=4)).total < 500_000_000
    assert estimate_memory(GRAPH, found.fits + 8, Options(threads=4, moments=5)).total > 500_000_000


def test_a_measured_pace_goes_before_the_model() -> None:
    found = forecast(GRAPH, FAR, phone(), replace(LEAN, pace=2.0))
    assert found.compute_s == pytest.approx(8 / 2.0)


@pytest.mark.parametrize(("asked", "named"), [({"wire": "powersgd"}, "powersgd"), ({"algorithm": "mpi"}, "mpi")])
def test_what_nobody_can_foretell_is_refused(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        forecast(GRAPH, FAR, phone(), replace(LEAN, **asked))


def test_every_network_of_the_paper_computes_for_95_percent_of_a_step() -> None:
    """On its rack, in its phones' memory; the deep ones' siblings stand for them, which takes a second a network."""
    for name in ("mobilenet_v2", "squeezenet_v1_0", "alexnet"):
        found = forecast(build(name), FAR, phone(), Rules())
        assert found.efficiency > WANTED, name


@pytest.mark.parametrize(("name", "batch"), [("mobilenet_v2", 64), ("alexnet", 32)])
@pytest.mark.parametrize("on", [FAR, imagined(16, 1, "1gbit", "1gbit")])
def test_pieces_are_chosen_about_as_well_as_playing_all_sizes_through_would(name: str, batch: int, on: Rack) -> None:
    """A run chooses by a rule of thumb, and a guess of how fast it computes. Here one of both takes much longer than
    the other: where they take the same, the rule is off by up to eight points."""
    graph, rules = build(name), Rules(batch=batch)
    chosen = forecast(graph, on, phone(), rules)
    way = replace(rules, algorithm=chosen.choice.algorithm, group=chosen.choice.group)
    best = max(forecast(graph, on, phone(), replace(way, bucket_bytes=size)).efficiency for size in BUCKET_SIZES)
    assert chosen.efficiency > best - 0.02
