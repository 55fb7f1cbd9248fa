"""The judging parts of `benchmarks/`: who won, what fits."""

from __future__ import annotations

import sys

import pytest

from benchmarks import compute, layers, memory, winograd_ab
from benchmarks.limits import memory_limit
from benchmarks.networks import TABLE_I
from benchmarks.peers import Peer, PeerError, Times, take_turns


@pytest.mark.parametrize("most", [1, 2, 17, 40, 41, 63, 64, 200])
@pytest.mark.parametrize("start", [1, 40, 100])
def test_the_largest_batch_is_found_from_any_start(most: int, start: int) -> None:
    good, bad = memory.search(lambda batch: batch <= most, start)
    assert good <= most < bad
    assert bad - good <= max(1, good // 50)


def test_nothing_may_fit() -> None:
    assert memory.search(lambda _: False, 40) == (0, 1)


def test_the_opponent_is_the_fastest_of_its_kind() -> None:
    match = compute.Match("resnet50", 16)
    match.rivals = {"default": Times((5.0, 6.0)), "tuned": Times((3.0, 8.0)), "im2col": Times((9.0,))}
    together = Times((2.0, 4.0))
    match.ours = {"default": together, "tuned": together, "im2col": Times((1.5,))}
    assert match.opponent() == "tuned"
    assert match.ratio() == 1.5
    assert match.ratio(middle=True) == 5.5 / 3
    assert match.ratio(compute.WITHOUT) == 6.0
    assert match.best == 1.5
    assert match.ratio(("mnn",)) is None


def test_rivals_far_behind_the_fastest_have_no_other_turn() -> None:
    times = {"ours": Times((9.0,)), "tuned": Times((1.0, 2.0)), "default": Times((1.2,)), "nchw": Times((1.3,))}
    assert compute.hopeful(times) == {"ours", "tuned", "default"}
    assert compute.hopeful({"ours": Times((9.0,))}) == {"ours"}


def _played(ratio: float, without: float) -> list[compute.Match]:
    """Every network at its batch of Table I and at 16."""
    pairs = dict.fromkeys((network, batch) for network, own in TABLE_I.items() for batch in (own, 16))
    matches = [compute.Match(network, batch) for network, batch in pairs]
    for match in matches:
        match.rivals = {"tuned": Times((ratio,)), "im2col": Times((without,))}
        match.ours = dict.fromkeys(match.rivals, Times((1.0,)))
    return matches


def test_promises_are_kept_for_each_set_of_batches_or_told() -> None:
    assert compute.missed_targets(_played(1.4, 4.5)) == []
    assert [told.partition(":")[0] for told in compute.missed_targets(_played(1.2, 4.5))] == [
        "batches of Table I",
        "batch 16",
    ]
    slow = _played(1.4, 4.5)
    slow[-1].rivals["tuned"] = Times((0.9,))
    assert any("squeezenet_v1_1 0.90x PyTorch" in told for told in compute.missed_targets(slow))
    assert len(compute.missed_targets(_played(1.4, 3.0))) == 4  # both MobileNets, twice


def test_what_was_not_played_breaks_the_promise() -> None:
    assert len(compute.missed_targets([])) == 4
    told = compute.missed_targets([match for match in _played(1.4, 4.5) if match.network != "resnet50"])
    assert len(told) == 4
    assert all("not played" in each and each.endswith("resnet50") for each in told)


def test_a_contestant_of_pipes_answers_and_its_errors_arrive() -> None:
    with Peer("ours", "benchmarks.our_peer", sys.executable) as peer:
        peer.ask("open", model="lenet", batch=2, threads=1, engine="reference")
        times = take_turns([peer], rounds=2, steps=1)
        assert len(times["ours"].all) == 2
        with pytest.raises(PeerError, match="unknown model"):
            peer.ask("open", model="lenot", batch=2, threads=1)


def test_a_process_is_held_to_its_memory() -> None:
    with memory_limit(300_000_000) as limit:
        with Peer("small", "benchmarks.our_peer", inside=limit.inside) as peer:
            peer.ask("open", model="lenet", batch=2, threads=1, engine="reference")
        with Peer("large", "benchmarks.our_peer", inside=limit.inside) as peer, pytest.raises(PeerError):
            peer.ask("open", model="alexnet", batch=2, threads=1, engine="reference")


def test_layers_have_the_shapes_of_their_networks() -> None:
    for shape in layers.SHAPES:
        geometry = shape.geometry(4)
        assert min(geometry["out_h"], geometry["out_w"]) >= 1
        assert shape.channels % shape.groups == 0
    titles = [shape.title for shape in layers.SHAPES]
    assert len(titles) == len(set(titles))


def test_methods_are_judged_by_seed() -> None:
    def run(method: str, seed: int, accuracy: float) -> winograd_ab.Run:
        return winograd_ab.Run(method, seed, (1.0,), accuracy)

    runs = [run("direct", seed, 90 + seed) for seed in range(3)]
    assert winograd_ab.is_safe([*runs, *(run("winograd4", seed, 89.9 + seed) for seed in range(3))], "winograd4")
    assert not winograd_ab.is_safe([*runs, *(run("winograd4", seed, 88 + seed) for seed in range(3))], "winograd4")
