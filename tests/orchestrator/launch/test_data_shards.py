"""Where each phone has its share of the samples: who takes the share of one that was lost."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.inventory.model import Phone
from orchestrator.launch.data_shards import batches_by_share, turns_by_share
from orchestrator.launch.next_attempt import next_attempt
from phone_agent.contract.schema import DataSpec, Partition, PartitionSlice, RankSpec, RunSpec
from phone_agent.contract.sharding import rank_spans
from phone_agent.data.sampling import order_of
from tests.orchestrator.launch.samples import phones

TWELVE = phones(12, 3)
BATCHES = st.lists(st.integers(1, 9), min_size=2, max_size=8)


def shared(batches: list[int], samples: int = 500) -> RunSpec:
    ranks = tuple(
        RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)
        for rank, (phone, batch) in enumerate(zip(TWELVE, batches, strict=False))
    )
    return RunSpec("run", "lenet", DataSpec("dots", samples, (28, 28, 1), 10), ranks, 50)


def samples_of(spec: RunSpec, step: int) -> list[int]:
    return sorted(int(sample) for rank in spec.ranks for sample in order_of(spec, rank.rank).taken(step)[0])


def survivors(spec: RunSpec, some: list[int]) -> list[Phone]:
    kept = {TWELVE[number] for number in some}
    return [phone for phone in TWELVE if phone in kept][: spec.global_batch]


@given(BATCHES, st.lists(st.integers(0, 11), min_size=1), st.lists(st.integers(0, 11), min_size=1), st.integers(0, 90))
def test_a_step_has_the_same_samples_whichever_phones_are_left(
    batches: list[int], first: list[int], second: list[int], step: int
) -> None:
    spec = shared(batches)
    for number, some in enumerate((first, second), 1):
        spec = next_attempt(spec, survivors(spec, some), number)
        assert samples_of(spec, step) == samples_of(shared(batches), step)
        assert spec.global_batch == sum(batches)


@given(BATCHES, st.lists(st.integers(0, 11), min_size=1), st.integers(0, 90))
def test_phones_have_what_they_take(batches: list[int], some: list[int], step: int) -> None:
    begun = shared(batches)
    spec = next_attempt(begun, survivors(begun, some), 1)
    sizes = [rank.batch for rank in spec.ranks]
    for rank in spec.ranks:
        taken = order_of(spec, rank.rank).taken(step)[0]
        here = rank_spans(spec.data, sizes, rank.rank)
        assert len(taken) == rank.batch
        assert all(any(start <= sample < end for start, end in here) for sample in taken)


def test_a_lost_share_is_dealt_and_nobody_gives_up_any_of_its_own() -> None:
    shares = [Partition("a", 4), Partition("b", 4), Partition("c", 4)]
    batches = batches_by_share(shares, ["a", "c"])
    assert batches == (6, 6)
    assert turns_by_share(shares, ["a", "c"], batches) == (
        (PartitionSlice(0, 0, 4), PartitionSlice(1, 0, 2)),
        (PartitionSlice(2, 0, 4), PartitionSlice(1, 2, 4)),
    )


def test_a_spare_takes_over_what_was_lost_and_nothing_else_moves() -> None:
    shares = [Partition("a", 5), Partition("b", 4), Partition("c", 3)]
    batches = batches_by_share(shares, ["a", "c", "spare"])
    assert batches == (5, 3, 4)
    assert turns_by_share(shares, ["a", "c", "spare"], batches)[2] == (PartitionSlice(1, 0, 4),)


def test_a_phone_that_is_back_has_its_share_again() -> None:
    begun = shared([4, 4, 4])
    without = next_attempt(begun, TWELVE[1:3], 1)
    again = next_attempt(without, TWELVE[:3], 2)
    assert [rank.batch for rank in again.ranks] == [4, 4, 4]
    assert again.data.assignments == (
        (PartitionSlice(0, 0, 4),),
        (PartitionSlice(1, 0, 4),),
        (PartitionSlice(2, 0, 4),),
    )


def test_more_phones_than_there_were_each_get_something() -> None:
    spec = next_attempt(shared([6, 6]), TWELVE[:5], 1)
    assert min(rank.batch for rank in spec.ranks) >= 1
    assert samples_of(spec, 7) == samples_of(shared([6, 6]), 7)


def test_phones_read_the_deal_that_the_host_wrote() -> None:
    spec = next_attempt(shared([4, 3, 5]), TWELVE[:2], 1)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_a_run_from_before_shares_were_kept_can_still_be_read() -> None:
    spec = shared([4, 4])
    document = json.loads(spec.to_json())
    del document["data"]["partitions"], document["data"]["assignments"]
    assert RunSpec.from_json(json.dumps(document)) == spec


def test_a_part_of_a_batch_is_of_the_ranks_own() -> None:
    spec = next_attempt(shared([4, 4, 4]), TWELVE[:2], 1)
    order = order_of(spec, 0)
    parts = [order.taken(3, slice(*edge))[0] for edge in ((0, 5), (5, 6))]
    np.testing.assert_array_equal(np.concatenate(parts), order.taken(3)[0])


def test_samples_that_all_have_are_dealt_by_speed_and_nobody_has_turns() -> None:
    spec = shared([4, 4, 4])
    again = next_attempt(replace(spec, data=replace(spec.data, replicated=True)), TWELVE[:2], 1)
    assert (again.data.partitions, again.data.assignments) == ((), ())
