"""The way gradients travel follows from the line; a person's word counts more."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.comm.autotune import BUCKETS, DEFAULT_BUCKET, Choice, Wanted, choose, limit_s
from phone_agent.comm.groups import divided
from phone_agent.comm.link_probe import Line, line, probe
from phone_agent.comm.message_sizes import Numbers
from phone_agent.comm.powersgd import Factors
from phone_agent.comm.world import Alone
from phone_agent.nn.packing import packing_of
from phone_agent.train.cost_estimate import computing_s
from tests.phone_agent.thread_world import on_ranks

GIGABIT = 117e6
LAN = Line(3e-4, GIGABIT, GIGABIT)
COUNT = 4_200_000  # MobileNet's
LOAD = Numbers(COUNT)
AUTO = Wanted("auto", "auto", 0)
ONE_SWITCH = ["a"] * 4
RACK = ["a"] * 46 + ["b"] * 46 + ["c"] * 46


def test_nobody_to_talk_to() -> None:
    assert probe(Alone(), ["a"]) is None
    assert choose(AUTO, None, ["a"], LOAD) == Choice("ring", "fp32", DEFAULT_BUCKET)
    assert choose(Wanted("mpi", "fp16", 77), None, ["a"], LOAD) == Choice("mpi", "fp16", 77)


def test_what_a_person_says_counts() -> None:
    chosen = choose(Wanted("hierarchical", "int8", 12345), LAN, ONE_SWITCH, LOAD)
    assert (chosen.algorithm, chosen.wire, chosen.bucket_bytes) == ("hierarchical", "int8", 12345)
    assert chosen.predicted_s is not None
    assert chosen.limit_s is not None
    assert chosen.predicted_s > chosen.limit_s > 0


def test_factors_are_foretold_from_the_network_and_its_parts() -> None:
    """On a rack, short messages in small parts spend their time in hops: then larger parts, or groups, are chosen."""
    factors = Factors(packing_of(models.build("resnet50")))
    small, chosen = (choose(Wanted("ring", "powersgd", size), LAN, RACK, factors) for size in (DEFAULT_BUCKET, 0))
    assert small.predicted_s
    assert chosen.predicted_s
    assert chosen.limit_s
    assert chosen.limit_s == pytest.approx(
        2 * 137 / 138 * sum(factors.messages("powersgd", BUCKETS[-1])) / GIGABIT, rel=0.02
    )
    assert chosen.bucket_bytes == BUCKETS[-1]
    assert chosen.limit_s < chosen.predicted_s < small.predicted_s / 2
    free = choose(Wanted("auto", "powersgd", 0), LAN, RACK, factors)
    assert free.algorithm == "hierarchical"
    assert free.predicted_s
    assert free.predicted_s < chosen.predicted_s / 2
    near = choose(Wanted("auto", "powersgd", 0), Line(1e-6, GIGABIT, GIGABIT), ONE_SWITCH, factors)
    assert (near.algorithm, near.bucket_bytes) == ("ring", BUCKETS[0])


@pytest.mark.parametrize("algorithm", ["mpi", "chunkwise"])
@pytest.mark.parametrize(("given", "size"), [(0, DEFAULT_BUCKET), (12345, 12345)])
def test_what_mpi_does_is_not_foretold_but_no_faster_than_the_line(algorithm: str, given: int, size: int) -> None:
    chosen = choose(Wanted(algorithm, "fp32", given), LAN, ["a"] * 138, LOAD)
    assert (chosen.algorithm, chosen.predicted_s, chosen.bucket_bytes) == (algorithm, None, size)
    assert chosen.limit_s == pytest.approx(2 * 137 / 138 * 4 * COUNT / GIGABIT)


def test_a_slow_line_gets_half_precision_and_one_switch_a_ring() -> None:
    chosen = choose(AUTO, LAN, ONE_SWITCH, LOAD)
    assert (chosen.algorithm, chosen.wire) == ("ring", "fp16")


def test_thin_uplinks_get_a_hierarchy() -> None:
    thin = Line(3e-4, GIGABIT, GIGABIT / 10)
    groups = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert choose(Wanted("auto", "fp32", 0), thin, groups, LOAD).algorithm == "hierarchical"
    assert choose(Wanted("ring", "fp32", 0), thin, groups, LOAD).algorithm == "ring"


@pytest.mark.parametrize("ranks", [2, 4, 46, 138])
def test_buckets_grow_with_latency_and_ranks_and_predictions_near_the_limit(ranks: int) -> None:
    wanted = Wanted("ring", "fp32", 0)
    quick, slow = (
        choose(wanted, Line(latency, 1e8, 1e8), ["a"] * ranks, Numbers(25_600_000)) for latency in (1e-6, 1e-3)
    )
    assert BUCKETS[0] <= quick.bucket_bytes < slow.bucket_bytes
    assert quick.predicted_s == pytest.approx(quick.limit_s, rel=0.05)


def test_pieces_are_small_where_computing_hides_them_and_large_where_it_does_not() -> None:
    """Large ones take less time in all, small ones are waited for less at a step's end."""
    far, wanted = Line(5e-4, GIGABIT, GIGABIT), Wanted("ring", "fp32", 0)
    hidden, exposed, alone = (
        choose(wanted, far, RACK, Numbers(25_600_000), compute_s) for compute_s in (60.0, 0.5, None)
    )
    assert hidden.bucket_bytes == BUCKETS[0] < exposed.bucket_bytes == alone.bucket_bytes
    assert hidden.predicted_s
    assert alone.predicted_s
    assert hidden.predicted_s > alone.predicted_s


def test_what_is_hidden_anyway_is_summed_in_the_plainest_way_that_ends_as_soon() -> None:
    near = Line(1e-7, GIGABIT, GIGABIT)
    assert choose(Wanted("auto", "fp32", 0), near, RACK, LOAD, 60.0).algorithm == "ring"
    assert choose(AUTO, near, RACK, LOAD, 60.0).wire == "fp16"  # the last part is still waited for


@pytest.mark.parametrize("algorithm", ["mpi", "chunkwise"])
@pytest.mark.parametrize("line", [None, LAN])
def test_what_sends_plain_numbers_only_is_not_given_others(algorithm: str, line: Line | None) -> None:
    assert choose(Wanted(algorithm, "auto", 0), line, ONE_SWITCH, LOAD).wire == "fp32"


def test_the_limit_is_the_least_a_rank_must_send() -> None:
    assert limit_s(Line(0.5, 100.0, 50.0), ONE_SWITCH, Choice("ring", "fp32", 1), Numbers(250)) == pytest.approx(
        2 * 3 / 4 * 1000 / 50
    )


@pytest.mark.parametrize(
    ("across", "seconds"), [(10.0, 2 * 1 / 2 * 1000 / 10), (90.0, 2 * (2 / 3 + 1 / 6) * 1000 / 100)]
)
def test_a_hierarchy_sends_less_across_switches(across: float, seconds: float) -> None:
    """Whichever is busy longer: an uplink, which needs each number there and back; or the cable of one of the three
    phones on the larger switch, which carries two thirds inside and half of its third across, twice."""
    line = Line(0.5, 100.0, across)
    assert limit_s(line, ["a", "a", "b", "b", "b"], Choice("hierarchical", "fp32", 1), Numbers(250)) == pytest.approx(
        seconds
    )


def test_many_phones_that_are_far_from_each_other_sum_in_small_groups() -> None:
    far, near = (choose(Wanted("auto", "fp32", 0), Line(late, GIGABIT, GIGABIT), RACK, LOAD) for late in (1e-3, 1e-7))
    assert (near.algorithm, near.group) == ("ring", 0)
    assert far.algorithm == "hierarchical"
    others = [
        choose(Wanted("hierarchical", "fp32", 0, group), Line(1e-3, GIGABIT, GIGABIT), RACK, LOAD)
        for group in (0, 2, 23)
    ]
    assert all(far.predicted_s < other.predicted_s for other in others if far.predicted_s and other.predicted_s)


def test_what_a_share_computes_is_guessed_whatever_its_size() -> None:
    """Ten thousand images are computed in parts: nothing could be planned for all of them."""
    graph = models.build("mobilenet_v2")
    one, few, many = (computing_s(graph, batch) for batch in (1, 16, 10_000))
    assert one < few < many == pytest.approx(625 * few)


def test_groups_that_a_person_asked_for_are_kept() -> None:
    assert choose(Wanted("hierarchical", "fp32", 0, 5), LAN, RACK, LOAD).group == 5
    assert choose(Wanted("auto", "fp32", 0, 5), Line(1e-3, GIGABIT, GIGABIT), RACK, LOAD).group == 5


@given(switches=st.lists(st.sampled_from("abc"), max_size=60).map(sorted), most=st.integers(1, 20))
def test_groups_are_even_neighbours_on_one_switch(switches: list[str], most: int) -> None:
    groups = divided(switches, most)
    sizes = Counter(groups)
    for switch, there in Counter(switches).items():
        own = [size for group, size in sizes.items() if group.split("/")[0] == switch]
        assert sum(own) == there
        assert max(own) <= most
        assert max(own) - min(own) <= 1
        assert len(own) == -(-there // most)
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups))


def test_without_a_limit_a_switch_is_a_group() -> None:
    assert divided(["a", "b", "a"]) == ["a/0", "b/0", "a/0"]


def test_slow_hops_are_told_by_where_they_are() -> None:
    """Rank r receives from rank r - 1: here ranks 0 and 2 across the uplink."""
    assert line(0.1, [5.0, 9.0, 4.0, 8.0], ["a", "a", "b", "b"]) == Line(0.1, 8.0, 4.0)
    assert line(0.1, [5.0, 9.0], ["a", "a"]) == Line(0.1, 5.0, 5.0)
    assert line(0.1, [5.0, 9.0], ["a", "b"]) == Line(0.1, 5.0, 5.0)


def test_every_rank_finds_the_same_line() -> None:
    found = on_ranks(4, lambda world: probe(world, ["a", "a", "b", "b"]))
    assert found[0] is not None
    assert found[0].slowest > 0
    assert found == [found[0]] * 4
