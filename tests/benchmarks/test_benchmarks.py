"""Logic of the compute and memory benchmarks: ratios, targets and the search for the largest batch."""

from __future__ import annotations

import sys

import pytest

from benchmarks import compute, layers, memory, winograd_ab
from benchmarks.limits import memory_limit
from benchmarks.networks import TABLE_I
from benchmarks.peers import Peer, PeerError, Times, run_in_turns


@pytest.mark.parametrize("most", [1, 2, 17, 40, 41, 63, 64, 200])
@pytest.mark.parametrize("start", [1, 40, 100])
def test_search_finds_the_largest_batch_from_any_start(most: int, start: int) -> None:
    good, bad = memory.search(lambda batch: batch <= most, start)
    assert good <= most < bad
    assert bad - good <= max(1, good // 50)


def test_search_returns_zero_if_nothing_fits() -> None:
    assert memory.search(lambda _: False, 40) == (0, 1)


def test_opponent_is_the_fastest_rival_of_its_kind() -> None:
    match = compute.Match("resnet50", 16)
    match.rivals = {"default": Times((5.0, 6.0)), "tuned": Times((3.0, 8.0)), "im2col": Times((9.0,))}
    shared = Times((2.0, 4.0))
    match.ours = {"default": shared, "tuned": shared, "im2col": Times((1.5,))}
    assert match.opponent() == "tuned"
    assert match.ratio() == 1.5
    assert match.ratio(by_median=True) == 5.5 / 3
    assert match.ratio(compute.WITHOUT) == 6.0
    assert match.best == 1.5
    assert match.ratio(("mnn",)) is None


def test_rivals_far_behind_the_fastest_get_no_further_turn() -> None:
    times = {"ours": Times((9.0,)), "tuned": Times((1.0, 2.0)), "default": Times((1.2,)), "nchw": Times((1.3,))}
    assert compute.still_competitive(times) == {"ours", "tuned", "default"}
    assert compute.still_competitive({"ours": Times((9.0,))}) == {"ours"}


def _played(ratio: float, without: float) -> list[compute.Match]:
    """Every network at its batch size of Table I and at 16."""
    pairs = dict.fromkeys((network, batch) for network, own in TABLE_I.items() for batch in (own, 16))
    matches = [compute.Match(network, batch) for network, batch in pairs]
    for match in matches:
        match.rivals = {"tuned": Times((ratio,)), "im2col": Times((without,))}
        match.ours = dict.fromkeys(match.rivals, Times((1.0,)))
    return matches


def test_missed_targets_are_reported_for_each_set_of_batches() -> None:
    assert compute.missed_targets(_played(1.4, 4.5)) == []
    assert [line.partition(":")[0] for line in compute.missed_targets(_played(1.2, 4.5))] == [
        "batches of Table I",
        "batch 16",
    ]
    slow = _played(1.4, 4.5)
    slow[-1].rivals["tuned"] = Times((0.9,))
    assert any("squeezenet_v1_1 0.90x PyTorch" in line for line in compute.missed_targets(slow))
    assert len(compute.missed_targets(_played(1.4, 3.0))) == 4  # both MobileNets, twice


def test_unmeasured_networks_miss_the_target() -> None:
    assert len(compute.missed_targets([])) == 4
    missed = compute.missed_targets([match for match in _played(1.4, 4.5) if match.network != "resnet50"])
    assert len(missed) == 4
    assert all("not compared" in each and each.endswith("resnet50") for each in missed)


def test_peer_answers_and_reports_errors() -> None:
    with Peer("ours", "benchmarks.our_peer", sys.executable) as peer:
        peer.ask("open", model="lenet", batch=2, threads=1, engine="reference")
        times = run_in_turns([peer], rounds=2, steps=1)
        assert len(times["ours"].all) == 2
        with pytest.raises(PeerError, match="unknown model"):
            peer.ask("open", model="lenot", batch=2, threads=1)


def test_memory_limit_stops_a_process_that_exceeds_it() -> None:
    with memory_limit(300_000_000) as limit:
        with Peer("small", "benchmarks.our_peer", inside=limit.inside) as peer:
            peer.ask("open", model="lenet", batch=2, threads=1, engine="reference")
        with Peer("large", "benchmarks.our_peer", inside=limit.inside) as peer, pytest.raises(PeerError):
            peer.ask("open", model="alexnet", batch=2, threads=1, engine="reference")


def test_layer_shapes_are_valid_and_unique() -> None:
    for shape in layers.SHAPES:
        geometry = shape.geometry(4)
        assert min(geometry["out_h"], geometry["out_w"]) >= 1
        assert shape.channels % shape.groups == 0
    titles = [shape.title for shape in layers.SHAPES]
    assert len(titles) == len(set(titles))


def test_winograd_is_compared_with_direct_seed_by_seed() -> None:
    def run(method: str, seed: int, accuracy: float) -> winograd_ab.Run:
        return winograd_ab.Run(method, seed, (1.0,), accuracy)

    runs = [run("direct", seed, 90 + seed) for seed in range(3)]
    assert winograd_ab.is_safe([*runs, *(run("winograd4", seed, 89.9 + seed) for seed in range(3))], "winograd4")
    assert not winograd_ab.is_safe([*runs, *(run("winograd4", seed, 88 + seed) for seed in range(3))], "winograd4")
