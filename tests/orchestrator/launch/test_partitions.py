"""With partitioned data, the partition of a lost phone goes to the others."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.inventory.model import Phone
from orchestrator.launch.next_attempt import next_attempt
from orchestrator.launch.partitions import assign_slices, batches_by_partition
from phone_agent.contract.schema import DataSpec, Partition, PartitionSlice, RankSpec, RunSpec
from phone_agent.contract.sharding import rank_spans
from phone_agent.data.sampling import sample_order
from tests.orchestrator.launch.samples import phones

TWELVE = phones(12, 3)
BATCHES = st.lists(st.integers(1, 9), min_size=2, max_size=8)


def partitioned(batches: list[int], samples: int = 500) -> RunSpec:
    ranks = tuple(
        RankSpec(rank, phone.name, phone.switch, phone.port, str(phone.address), batch)
        for rank, (phone, batch) in enumerate(zip(TWELVE, batches, strict=False))
    )
    return RunSpec("run", "lenet", DataSpec("dots", samples, (28, 28, 1), 10), ranks, 50)


def samples_of(spec: RunSpec, step: int) -> list[int]:
    return sorted(int(sample) for rank in spec.ranks for sample in sample_order(spec, rank.rank).samples_at(step)[0])


def survivors(spec: RunSpec, some: list[int]) -> list[Phone]:
    kept = {TWELVE[number] for number in some}
    return [phone for phone in TWELVE if phone in kept][: spec.global_batch]


@given(BATCHES, st.lists(st.integers(0, 11), min_size=1), st.lists(st.integers(0, 11), min_size=1), st.integers(0, 90))
def test_a_step_has_the_same_samples_whichever_phones_are_left(
    batches: list[int], first: list[int], second: list[int], step: int
) -> None:
    spec = partitioned(batches)
    for number, some in enumerate((first, second), 1):
        spec = next_attempt(spec, survivors(spec, some), number)
        assert samples_of(spec, step) == samples_of(partitioned(batches), step)
        assert spec.global_batch == sum(batches)


@given(BATCHES, st.lists(st.integers(0, 11), min_size=1), st.integers(0, 90))
def test_phones_have_the_samples_they_read(batches: list[int], some: list[int], step: int) -> None:
    begun = partitioned(batches)
    spec = next_attempt(begun, survivors(begun, some), 1)
    sizes = [rank.batch for rank in spec.ranks]
    for rank in spec.ranks:
        taken = sample_order(spec, rank.rank).samples_at(step)[0]
        here = rank_spans(spec.data, sizes, rank.rank)
        assert len(taken) == rank.batch
        assert all(any(start <= sample < end for start, end in here) for sample in taken)


def test_lost_partition_is_split_and_phones_keep_their_own() -> None:
    partitions = [Partition("a", 4), Partition("b", 4), Partition("c", 4)]
    batches = batches_by_partition(partitions, ["a", "c"])
    assert batches == (6, 6)
    assert assign_slices(partitions, ["a", "c"], batches) == (
        (PartitionSlice(0, 0, 4), PartitionSlice(1, 0, 2)),
        (PartitionSlice(2, 0, 4), PartitionSlice(1, 2, 4)),
    )


def test_spare_takes_over_the_lost_partition_and_nothing_else_moves() -> None:
    partitions = [Partition("a", 5), Partition("b", 4), Partition("c", 3)]
    batches = batches_by_partition(partitions, ["a", "c", "spare"])
    assert batches == (5, 3, 4)
    assert assign_slices(partitions, ["a", "c", "spare"], batches)[2] == (PartitionSlice(1, 0, 4),)


def test_returning_phone_gets_its_partition_back() -> None:
    begun = partitioned([4, 4, 4])
    without = next_attempt(begun, TWELVE[1:3], 1)
    again = next_attempt(without, TWELVE[:3], 2)
    assert [rank.batch for rank in again.ranks] == [4, 4, 4]
    assert again.data.assignments == (
        (PartitionSlice(0, 0, 4),),
        (PartitionSlice(1, 0, 4),),
        (PartitionSlice(2, 0, 4),),
    )


def test_additional_phones_each_get_some_samples() -> None:
    spec = next_attempt(partitioned([6, 6]), TWELVE[:5], 1)
    assert min(rank.batch for rank in spec.ranks) >= 1
    assert samples_of(spec, 7) == samples_of(partitioned([6, 6]), 7)


def test_assignments_survive_json() -> None:
    spec = next_attempt(partitioned([4, 3, 5]), TWELVE[:2], 1)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_partitions_and_assignments_are_optional_in_json() -> None:
    spec = partitioned([4, 4])
    document = json.loads(spec.to_json())
    del document["data"]["partitions"], document["data"]["assignments"]
    assert RunSpec.from_json(json.dumps(document)) == spec


def test_parts_of_a_batch_add_up_to_the_batch_of_the_rank() -> None:
    spec = next_attempt(partitioned([4, 4, 4]), TWELVE[:2], 1)
    order = sample_order(spec, 0)
    parts = [order.samples_at(3, slice(*edge))[0] for edge in ((0, 5), (5, 6))]
    np.testing.assert_array_equal(np.concatenate(parts), order.samples_at(3)[0])


def test_replicated_data_needs_no_partitions() -> None:
    spec = partitioned([4, 4, 4])
    again = next_attempt(replace(spec, data=replace(spec.data, replicated=True)), TWELVE[:2], 1)
    assert (again.data.partitions, again.data.assignments) == ((), ())
