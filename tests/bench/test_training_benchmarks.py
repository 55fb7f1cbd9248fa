"""The judging parts of the benchmarks that train: which turns count, what is run again, what is compared with what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy, cifar, ddp, wires
from benchmarks.accuracy import PHONES_SIDE, TORCH_SIDE, Notebook, Result
from phone_agent import models
from tests.agent.thread_world import ThreadWorld, on_ranks


def result(seed: int, side: str, right: float) -> Result:
    judged = ({"step": 10, "top1": 0.1, "loss": 2.0}, {"step": 20, "top1": right, "loss": 1.0})
    return Result("fp32", side, seed, 128, 20, 1.5, (2.3, 2.2), (2.0, 1.5), judged)


def test_only_the_steps_after_the_warm_up_count_and_contestants_change_places() -> None:
    turns: list[tuple[str, int]] = []

    def steps_of(name: str, seconds: float) -> ddp.Steps:
        def steps(count: int) -> list[float]:
            turns.append((name, count))
            slow_start = [100.0] * ddp.WARM_UP
            return list(np.cumsum([*slow_start, *[seconds] * (count - ddp.WARM_UP)]))

        return steps

    contestants = {ddp.OURS: steps_of(ddp.OURS, 0.5), ddp.THEIRS: steps_of(ddp.THEIRS, 1.0)}
    found = ddp.race(contestants, rounds=2, steps=4, images=32)
    assert found == {ddp.OURS: [64.0, 64.0], ddp.THEIRS: [32.0, 32.0]}
    assert [name for name, _ in turns] == [ddp.OURS, ddp.THEIRS, ddp.THEIRS, ddp.OURS]
    assert ddp.ratio(found) == pytest.approx(2.0)


def test_factors_begin_after_the_first_tenth_and_their_bytes_are_told() -> None:
    numbers = np.random.default_rng(0)
    samples = wires.Samples(
        numbers.standard_normal((64, 28, 28, 1)).astype(np.float32), (np.arange(64) % 10).astype(np.uint8)
    )
    found = {}
    for wire in ("fp32", "powersgd"):
        for steps in (9, 10):  # the first of ten is in full; of nine, none
            found[wire, steps] = wires.run(wires.Setting("lenet", 2, 2, steps), wire, 0, samples, samples)
    assert found["powersgd", 9].bytes_a_step == found["powersgd", 10].bytes_a_step
    assert found["powersgd", 10].bytes_a_step < found["fp32", 10].bytes_a_step / 10
    first = [_first_step(wire, steps, samples) for wire, steps in (("fp32", 10), ("powersgd", 10), ("powersgd", 9))]
    assert first[0] == first[1] != first[2]


def _first_step(wire: str, steps: int, samples: wires.Samples) -> bytes:
    def work(world: ThreadWorld) -> bytes:
        rank = wires.Rank(wires.Setting("lenet", 2, 2, steps), wire, 0, world, samples)
        next(rank.losses())
        return rank.state.values.tobytes()

    return on_ranks(2, work)[0]


def test_results_are_kept_with_the_run_that_gave_them(tmp_path: Path) -> None:
    Notebook(tmp_path / "found.json").add(result(0, PHONES_SIDE, 0.7), run="{}")
    again = Notebook(tmp_path / "found.json")
    assert again.has("fp32", PHONES_SIDE, 0)
    assert not again.has("fp32", TORCH_SIDE, 0)
    assert not again.has("fp32", PHONES_SIDE, 1)
    assert again.run_of("fp32", 0) == "{}"
    assert again.results[0].points == pytest.approx(70.0)


def test_runs_are_compared_with_pytorch_s_of_the_same_seed() -> None:
    ours = [result(0, PHONES_SIDE, 0.71), result(1, PHONES_SIDE, 0.75), result(2, PHONES_SIDE, 0.9)]
    theirs = [result(1, TORCH_SIDE, 0.74), result(0, TORCH_SIDE, 0.73)]
    assert accuracy.to_torch(ours, [*ours, *theirs]) == pytest.approx([-2.0, 1.0])


def test_losses_are_means_since_the_network_was_judged_last() -> None:
    judged = [{"step": 2, "top1": 0.2, "loss": 2.0, "time": 1.0}, {"step": 4, "top1": 0.5, "loss": 1.0, "time": 2.0}]
    assert accuracy.means_between([4.0, 2.0, 1.0, 0.0], judged) == (3.0, 0.5)


def test_records_are_a_label_and_the_colours_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(cifar, "BATCH", 3)
    pixels = np.random.default_rng(0).integers(0, 256, (3, cifar.PIXELS, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "test_batch.png")
    cifar.records(tmp_path / "test_batch.png", np.array([7, 0, 9], np.uint8)).tofile(tmp_path / "test_batch.bin")
    samples = cifar.load(tmp_path, cifar.TEST)
    assert samples.labels.tolist() == [7, 0, 9]
    assert np.array_equal(samples.images, pixels.reshape(3, *cifar.SHAPE))


def test_the_small_network_halves_the_map_three_times() -> None:
    graph = models.build(accuracy.MODEL, 10, (32, 32, 3))
    shapes = {node.name: node.shape for node in graph.nodes}
    assert [shapes[f"block{number}.out"] for number in (1, 2, 3)] == [(16, 16, 32), (8, 8, 64), (4, 4, 128)]
    assert graph.classes == 10
