"""Autotuning follows from the measured links; what the user fixed overrides it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.comm.autotune import (
    BUCKET_SIZES,
    DEFAULT_BUCKET_BYTES,
    CollectiveConfig,
    DenseMessageSizes,
    autotune,
    lower_bound_s,
)
from phone_agent.comm.hierarchical import assign_groups
from phone_agent.comm.link_probe import LinkProfile, link_profile, probe_links
from phone_agent.comm.powersgd import PowerSgdMessageSizes
from phone_agent.comm.world import SingleProcessWorld
from phone_agent.contract.schema import CommunicationSpec
from phone_agent.nn.packing import packing_of
from phone_agent.nn.plan.memory_plan import estimate_compute_s
from tests.phone_agent.thread_world import on_ranks

GIGABIT = 117e6
LAN = LinkProfile(3e-4, GIGABIT, GIGABIT)
COUNT = 4_200_000  # parameters of MobileNet-v1
LOAD = DenseMessageSizes(COUNT)
AUTO = CommunicationSpec("auto", "auto")
ONE_SWITCH = ["a"] * 4
RACK = ["a"] * 46 + ["b"] * 46 + ["c"] * 46


def test_single_rank_gets_the_simplest_config() -> None:
    assert probe_links(SingleProcessWorld(), ["a"]) is None
    assert autotune(AUTO, None, ["a"], LOAD) == CollectiveConfig("ring", "fp32", DEFAULT_BUCKET_BYTES)
    assert autotune(CommunicationSpec("mpi", "fp16", bucket_bytes=77), None, ["a"], LOAD) == CollectiveConfig(
        "mpi", "fp16", 77
    )


def test_user_choices_override_the_model() -> None:
    chosen = autotune(CommunicationSpec("hierarchical", "int8", bucket_bytes=12345), LAN, ONE_SWITCH, LOAD)
    assert (chosen.algorithm, chosen.wire, chosen.bucket_bytes) == ("hierarchical", "int8", 12345)
    assert chosen.predicted_s is not None
    assert chosen.limit_s is not None
    assert chosen.predicted_s > chosen.limit_s > 0


def test_powersgd_is_predicted_from_the_message_sizes_of_the_model() -> None:
    """On a rack, the latency of short messages dominates, so larger buckets or groups are chosen."""
    factors = PowerSgdMessageSizes(packing_of(models.build("resnet50")))
    small, chosen = (
        autotune(CommunicationSpec("ring", "powersgd", bucket_bytes=size), LAN, RACK, factors)
        for size in (DEFAULT_BUCKET_BYTES, 0)
    )
    assert small.predicted_s
    assert chosen.predicted_s
    assert chosen.limit_s
    assert chosen.limit_s == pytest.approx(
        2 * 137 / 138 * sum(factors.step_messages("powersgd", BUCKET_SIZES[-1])) / GIGABIT, rel=0.02
    )
    assert chosen.bucket_bytes == BUCKET_SIZES[-1]
    assert chosen.limit_s < chosen.predicted_s < small.predicted_s / 2
    free = autotune(CommunicationSpec("auto", "powersgd"), LAN, RACK, factors)
    assert free.algorithm == "hierarchical"
    assert free.predicted_s
    assert free.predicted_s < chosen.predicted_s / 2
    near = autotune(CommunicationSpec("auto", "powersgd"), LinkProfile(1e-6, GIGABIT, GIGABIT), ONE_SWITCH, factors)
    assert (near.algorithm, near.bucket_bytes) == ("ring", BUCKET_SIZES[0])


@pytest.mark.parametrize("algorithm", ["mpi", "chunkwise"])
@pytest.mark.parametrize(("given", "size"), [(0, DEFAULT_BUCKET_BYTES), (12345, 12345)])
def test_mpi_allreduce_has_a_lower_bound_but_no_prediction(algorithm: str, given: int, size: int) -> None:
    chosen = autotune(CommunicationSpec(algorithm, "fp32", bucket_bytes=given), LAN, ["a"] * 138, LOAD)
    assert (chosen.algorithm, chosen.predicted_s, chosen.bucket_bytes) == (algorithm, None, size)
    assert chosen.limit_s == pytest.approx(2 * 137 / 138 * 4 * COUNT / GIGABIT)


def test_slow_links_get_fp16_and_one_switch_a_ring() -> None:
    chosen = autotune(AUTO, LAN, ONE_SWITCH, LOAD)
    assert (chosen.algorithm, chosen.wire) == ("ring", "fp16")


def test_slow_uplinks_get_a_hierarchical_allreduce() -> None:
    thin = LinkProfile(3e-4, GIGABIT, GIGABIT / 10)
    groups = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert autotune(CommunicationSpec("auto", "fp32"), thin, groups, LOAD).algorithm == "hierarchical"
    assert autotune(CommunicationSpec("ring", "fp32"), thin, groups, LOAD).algorithm == "ring"


@pytest.mark.parametrize("ranks", [2, 4, 46, 138])
def test_buckets_grow_with_latency_and_predictions_approach_the_lower_bound(ranks: int) -> None:
    wanted = CommunicationSpec("ring", "fp32")
    quick, slow = (
        autotune(wanted, LinkProfile(latency, 1e8, 1e8), ["a"] * ranks, DenseMessageSizes(25_600_000))
        for latency in (1e-6, 1e-3)
    )
    assert BUCKET_SIZES[0] <= quick.bucket_bytes < slow.bucket_bytes
    assert quick.predicted_s == pytest.approx(quick.limit_s, rel=0.05)


def test_buckets_are_small_where_compute_hides_them_and_large_otherwise() -> None:
    """Large buckets take less time in total; small ones are exposed less at the end of a step."""
    far, wanted = LinkProfile(5e-4, GIGABIT, GIGABIT), CommunicationSpec("ring", "fp32")
    hidden, exposed, alone = (
        autotune(wanted, far, RACK, DenseMessageSizes(25_600_000), compute_s) for compute_s in (60.0, 0.5, None)
    )
    assert hidden.bucket_bytes == BUCKET_SIZES[0] < exposed.bucket_bytes == alone.bucket_bytes
    assert hidden.predicted_s
    assert alone.predicted_s
    assert hidden.predicted_s > alone.predicted_s


def test_hidden_communication_uses_the_simplest_algorithm() -> None:
    near = LinkProfile(1e-7, GIGABIT, GIGABIT)
    assert autotune(CommunicationSpec("auto", "fp32"), near, RACK, LOAD, 60.0).algorithm == "ring"
    assert autotune(AUTO, near, RACK, LOAD, 60.0).wire == "fp16"  # the last bucket is still exposed


@pytest.mark.parametrize("algorithm", ["mpi", "chunkwise"])
@pytest.mark.parametrize("line", [None, LAN])
def test_algorithms_that_support_only_fp32_get_fp32(algorithm: str, line: LinkProfile | None) -> None:
    assert autotune(CommunicationSpec(algorithm, "auto"), line, ONE_SWITCH, LOAD).wire == "fp32"


def test_lower_bound_is_what_each_rank_must_send() -> None:
    assert lower_bound_s(
        LinkProfile(0.5, 100.0, 50.0), ONE_SWITCH, CollectiveConfig("ring", "fp32", 1), DenseMessageSizes(250)
    ) == pytest.approx(2 * 3 / 4 * 1000 / 50)


@pytest.mark.parametrize(
    ("across", "seconds"), [(10.0, 2 * 1 / 2 * 1000 / 10), (90.0, 2 * (2 / 3 + 1 / 6) * 1000 / 100)]
)
def test_hierarchical_lower_bound_is_the_busiest_link(across: float, seconds: float) -> None:
    """Either an uplink, which carries each number in both directions; or the cable of one of the three phones on the
    larger switch, which carries two thirds within the group and half of its third across, twice."""
    line = LinkProfile(0.5, 100.0, across)
    assert lower_bound_s(
        line, ["a", "a", "b", "b", "b"], CollectiveConfig("hierarchical", "fp32", 1), DenseMessageSizes(250)
    ) == pytest.approx(seconds)


def test_high_latency_favors_small_groups() -> None:
    far, near = (
        autotune(CommunicationSpec("auto", "fp32"), LinkProfile(late, GIGABIT, GIGABIT), RACK, LOAD)
        for late in (1e-3, 1e-7)
    )
    assert (near.algorithm, near.group) == ("ring", 0)
    assert far.algorithm == "hierarchical"
    slow = LinkProfile(1e-3, GIGABIT, GIGABIT)
    others = [
        autotune(CommunicationSpec("hierarchical", "fp32", group_size=group), slow, RACK, LOAD) for group in (0, 2, 23)
    ]
    assert all(far.predicted_s < other.predicted_s for other in others if far.predicted_s and other.predicted_s)


def test_compute_time_is_estimated_for_any_batch() -> None:
    """Ten thousand images run as micro-batches: no plan could hold all of them."""
    graph = models.build("mobilenet_v2")
    one, few, many = (estimate_compute_s(graph, batch) for batch in (1, 16, 10_000))
    assert one < few < many == pytest.approx(625 * few)


def test_requested_group_size_is_used() -> None:
    assert autotune(CommunicationSpec("hierarchical", "fp32", group_size=5), LAN, RACK, LOAD).group == 5
    assert (
        autotune(CommunicationSpec("auto", "fp32", group_size=5), LinkProfile(1e-3, GIGABIT, GIGABIT), RACK, LOAD).group
        == 5
    )


@given(switches=st.lists(st.sampled_from("abc"), max_size=60).map(sorted), most=st.integers(1, 20))
def test_groups_are_even_runs_of_neighbors_on_one_switch(switches: list[str], most: int) -> None:
    groups = assign_groups(switches, most)
    sizes = Counter(groups)
    for switch, there in Counter(switches).items():
        own = [size for group, size in sizes.items() if group.split("/")[0] == switch]
        assert sum(own) == there
        assert max(own) <= most
        assert max(own) - min(own) <= 1
        assert len(own) == -(-there // most)
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups))


def test_without_a_maximum_size_a_switch_is_a_group() -> None:
    assert assign_groups(["a", "b", "a"]) == ["a/0", "b/0", "a/0"]


def test_link_rates_are_split_by_switch() -> None:
    """Rank r receives from rank r - 1: ranks 0 and 2 receive across the uplink."""
    assert link_profile(0.1, [5.0, 9.0, 4.0, 8.0], ["a", "a", "b", "b"]) == LinkProfile(0.1, 8.0, 4.0)
    assert link_profile(0.1, [5.0, 9.0], ["a", "a"]) == LinkProfile(0.1, 5.0, 5.0)
    assert link_profile(0.1, [5.0, 9.0], ["a", "b"]) == LinkProfile(0.1, 5.0, 5.0)


def test_every_rank_measures_the_same_link_profile() -> None:
    found = on_ranks(4, lambda world: probe_links(world, ["a", "a", "b", "b"]))
    assert found[0] is not None
    assert found[0].slowest > 0
    assert found == [found[0]] * 4
