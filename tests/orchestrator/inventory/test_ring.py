"""Ring order crosses each uplink once a direction, whatever the tree of switches looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.inventory import Cluster, Phone, hostfile, load
from orchestrator.inventory.load_switches import find_islands
from orchestrator.inventory.ring_order import ring_order
from orchestrator.inventory.ring_traffic import interleaved, uplink_path
from tests.orchestrator.inventory.strategies import clusters, phone

RACK = load(Path(__file__).parents[3] / "inventory.yaml")
UPLINKS = {switch.name: switch.uplink.to for switch in RACK.switches if switch.uplink}


def count_uplink_hops(cluster: Cluster, ring: Sequence[Phone]) -> Counter[tuple[str, str]]:
    """How many hops of the ring each uplink carries, by direction: (from switch, to switch)."""
    counted: Counter[tuple[str, str]] = Counter()
    if len(ring) > 1:
        for sender, receiver in zip(ring, [*ring[1:], ring[0]], strict=True):
            counted.update(uplink_path(cluster, sender.switch, receiver.switch))
    return counted


def sides(cluster: Cluster, uplink_of: str) -> tuple[set[str], set[str]]:
    """The switches on either side of an uplink: what is left connected when its cable is pulled."""
    cables = {switch.name: switch.uplink.to for switch in cluster.switches if switch.uplink}
    del cables[uplink_of]
    one, other = find_islands([switch.name for switch in cluster.switches], cables)
    return set(one), set(other)


@given(st.data())
def test_ring_crosses_each_uplink_once_a_direction(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    chosen = data.draw(st.sets(st.sampled_from(cluster.phones), min_size=1))
    ring = [phone for phone in cluster if phone in chosen]
    counted = count_uplink_hops(cluster, ring)
    for switch in cluster.switches:
        if switch.uplink:
            ends = [any(phone.switch in side for phone in ring) for side in sides(cluster, switch.name)]
            once = 1 if all(ends) else 0
            assert counted[switch.name, switch.uplink.to] == once
            assert counted[switch.uplink.to, switch.name] == once


@given(st.data())
def test_crossings_count_hops_between_sides(data: st.DataObject) -> None:
    """In any order: as many hops leave a side as have their sender on it and their receiver on the other."""
    cluster = data.draw(clusters())
    order: Sequence[Phone] = data.draw(st.permutations(cluster.phones))
    counted = count_uplink_hops(cluster, order)
    for switch in cluster.switches:
        if switch.uplink:
            one, other = sides(cluster, switch.name)
            here, there = (one, other) if switch.name in one else (other, one)
            out = sum(
                a.switch in here and b.switch in there for a, b in zip(order, [*order[1:], order[0]], strict=True)
            )
            assert counted[switch.name, switch.uplink.to] == out


@given(clusters())
def test_each_switch_is_visited_once_ports_ascending(cluster: Cluster) -> None:
    assert Counter(cluster.switches_in_ring_order) == Counter(cluster.switches)
    visited = list(dict.fromkeys(phone.switch for phone in cluster))
    assert cluster.phones == tuple(
        phone for name in visited for phone in sorted(cluster.switch(name).phones, key=lambda phone: phone.port)
    )


def test_order_starts_with_the_switch_listed_first() -> None:
    assert [switch.name for switch in RACK.switches_in_ring_order] == ["sw1", "sw2", "sw3"]
    assert ring_order(["sw3", "sw2", "sw1"], UPLINKS) == ("sw3", "sw2", "sw1")


def test_a_star_listed_by_its_leaves() -> None:
    assert ring_order(["sw1", "sw3", "sw2"], UPLINKS) == ("sw1", "sw2", "sw3")


def test_hostfile_lists_addresses_in_the_order_given() -> None:
    assert hostfile([phone(2, 1), phone(1, 3)]) == "10.77.2.1 slots=1\n10.77.1.3 slots=1\n"


def test_interleaved_takes_the_switches_in_turn() -> None:
    phones = [phone(1, 1), phone(1, 2), phone(1, 3), phone(2, 1), phone(3, 1), phone(3, 2)]
    assert [one.where for one in interleaved(phones)] == ["sw1:1", "sw2:1", "sw3:1", "sw1:2", "sw3:2", "sw1:3"]


def test_what_the_order_is_worth_on_the_shipped_rack() -> None:
    assert max(count_uplink_hops(RACK, RACK.phones).values()) == 1
    assert max(count_uplink_hops(RACK, interleaved(RACK)).values()) == 46


def test_one_phone_crosses_nothing() -> None:
    assert not count_uplink_hops(RACK, RACK.phones[:1])
