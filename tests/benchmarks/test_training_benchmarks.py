"""Logic of the training benchmarks: which rounds count, which runs are repeated, which results are compared."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy, cifar, ddp, wires
from benchmarks.accuracy import MODEL, NAMES, PHONES_SIDE, SIDES, TORCH_SIDE, Result, ResultStore, Training
from phone_agent import models
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

TRAININGS = {variant.name: Training(variant, MODEL, variant.epochs) for variant in accuracy.VARIANTS}


def result(name: str, side: str, right: float, seed: int = 0) -> Result:
    judged = ({"step": 10, "top1": 0.1, "loss": 2.0}, {"step": 20, "top1": right, "loss": 1.0})
    return Result(TRAININGS[name].setting, side, seed, 128, 20, 1.5, (2.3, 2.2), (2.0, 1.5), judged, "{}")


def options_for(variants: Sequence[str] = NAMES, sides: Sequence[str] = SIDES, seeds: int = 1) -> Namespace:
    return Namespace(model=MODEL, epochs=None, variants=variants, sides=sides, seeds=seeds)


def verdicts(path: Path, options: Namespace, results: Iterable[Result]) -> dict[str, str]:
    """Verdicts by variant."""
    store = ResultStore(path / "results.json")
    for each in results:
        store.add(each)
    lines = map(str, accuracy.targets(options, store))
    return {line.partition(":")[0]: line.rpartition(": ")[2] for line in lines}


def test_only_steps_after_warm_up_count_and_contestants_alternate() -> None:
    turns: list[tuple[str, int]] = []

    def steps_of(name: str, seconds: float) -> ddp.Steps:
        def steps(count: int) -> list[float]:
            turns.append((name, count))
            slow_start = [100.0] * ddp.WARM_UP
            return list(np.cumsum([*slow_start, *[seconds] * (count - ddp.WARM_UP)]))

        return steps

    contestants = {ddp.OURS: steps_of(ddp.OURS, 0.5), ddp.THEIRS: steps_of(ddp.THEIRS, 1.0)}
    rates = ddp.race(contestants, rounds=2, steps=4, images=32)
    assert rates == {ddp.OURS: [64.0, 64.0], ddp.THEIRS: [32.0, 32.0]}
    assert [name for name, _ in turns] == [ddp.OURS, ddp.THEIRS, ddp.THEIRS, ddp.OURS]
    assert ddp.ratio(rates) == pytest.approx(2.0)


def test_powersgd_starts_after_a_tenth_of_the_steps_and_reports_its_bytes() -> None:
    numbers = np.random.default_rng(0)
    samples = wires.Samples(
        numbers.standard_normal((64, 28, 28, 1)).astype(np.float32), (np.arange(64) % 10).astype(np.uint8)
    )
    outcomes = {}
    for wire in ("fp32", "powersgd"):
        for steps in (9, 10):  # with ten steps the first is uncompressed; with nine, none
            outcomes[wire, steps] = wires.run(wires.Setting("lenet", 2, 2, steps), wire, 0, samples, samples)
    assert outcomes["powersgd", 9].bytes_per_step == outcomes["powersgd", 10].bytes_per_step
    assert outcomes["powersgd", 10].bytes_per_step < outcomes["fp32", 10].bytes_per_step / 10
    first = [_first_step(wire, steps, samples) for wire, steps in (("fp16", 10), ("powersgd", 10), ("powersgd", 9))]
    assert first[0] == first[1] != first[2]


def _first_step(wire: str, steps: int, samples: wires.Samples) -> bytes:
    def work(world: ThreadWorld) -> bytes:
        rank = wires.Rank(wires.Setting("lenet", 2, 2, steps), wire, 0, world, samples)
        next(rank.losses())
        return rank.state.values.tobytes()

    return on_ranks(2, work)[0]


def test_results_are_stored_with_their_run(tmp_path: Path) -> None:
    ResultStore(tmp_path / "results.json").add(result("fp32", PHONES_SIDE, 0.7))
    again, training = ResultStore(tmp_path / "results.json"), TRAININGS["fp32"]
    stored = again.find(training, PHONES_SIDE, 0)
    assert stored is not None
    assert stored.points == pytest.approx(70.0)
    assert stored.run == "{}"
    assert again.find(training, TORCH_SIDE, 0) is None
    assert again.find(training, PHONES_SIDE, 1) is None


def test_results_with_other_settings_are_ignored(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results.json")
    store.add(result("fp32", PHONES_SIDE, 0.7))
    (tmp_path / "net.py").write_text("one")
    training, own = TRAININGS["fp32"], Training(TRAININGS["fp32"].variant, f"{tmp_path / 'net.py'}:build", 3)
    store.add(replace(result("fp32", PHONES_SIDE, 0.8), setting=own.setting))
    assert store.find(own, PHONES_SIDE, 0)
    (tmp_path / "net.py").write_text("another")
    other_flags = replace(training.variant, flags=("--lr", "0.4"))
    others = (
        replace(training, epochs=4),
        replace(training, variant=other_flags),
        replace(training, variant=replace(training.variant, warmup=1.0)),
        Training(training.variant, "resnet20", 3),
        Training(training.variant, own.model, 3),
    )
    assert [store.find(other, PHONES_SIDE, 0) for other in others] == [None] * len(others)


def test_a_results_file_without_settings_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"results": [{"variant": "fp32", "seed": 0}], "runs": {}}))
    with pytest.raises(SystemExit, match="choose another file with --out"):
        ResultStore(tmp_path / "old.json")


def test_results_in_the_docs_match_the_current_variants() -> None:
    docs = Path(__file__).parents[2] / "docs" / "results" / "accuracy.json"
    settings = {result["setting"] for result in json.loads(docs.read_text())["results"]}
    assert settings <= {training.setting for training in TRAININGS.values()}


def test_means_over_seeds_are_compared_with_pytorch_and_the_baseline(tmp_path: Path) -> None:
    points = {
        ("fp32", PHONES_SIDE): (0.75, 0.77),
        ("fp32", TORCH_SIDE): (0.76, 0.768),  # 0.4 more in the mean
        ("fp16", PHONES_SIDE): (0.80, 0.80),
        ("int8", PHONES_SIDE): (0.74, 0.772),  # 0.4 less
        ("powersgd", PHONES_SIDE): (0.74, 0.768),  # 0.6 less
        ("batch 128", PHONES_SIDE): (0.83, 0.83),
        (NAMES[-1], PHONES_SIDE): (0.83, 0.81),  # 1 less
    }
    results = [result(name, side, right[seed], seed) for (name, side), right in points.items() for seed in (0, 1)]
    assert verdicts(tmp_path, options_for(seeds=2), results) == {
        "fp32": "met",
        "fp16": "met",
        "int8": "met",
        "powersgd": "MISSED",
        NAMES[-1]: "MISSED",
    }


@pytest.mark.parametrize(("theirs", "verdict"), [(0.764, "MISSED"), (0.766, "met"), (0.776, "MISSED")])
def test_phones_may_be_neither_worse_nor_better_than_pytorch(tmp_path: Path, theirs: float, verdict: str) -> None:
    results = [result("fp32", PHONES_SIDE, 0.77), result("fp32", TORCH_SIDE, theirs)]
    assert verdicts(tmp_path, options_for(["fp32"]), results)["fp32"] == verdict


def test_requested_variants_that_were_not_run_miss_their_target(tmp_path: Path) -> None:
    results = [result("fp32", PHONES_SIDE, 0.77), result("fp16", PHONES_SIDE, 0.77)]
    lines = verdicts(tmp_path, options_for(["fp32", "fp16", "int8"]), results)
    not_requested = f"not checked, {accuracy.NOT_REQUESTED}"
    assert lines == {
        "fp32": "MISSED",
        "fp16": "met",
        "int8": "MISSED",
        "powersgd": not_requested,
        NAMES[-1]: not_requested,
    }
    assert verdicts(tmp_path, options_for(["fp32"], [PHONES_SIDE]), [])["fp32"] == not_requested
    assert verdicts(tmp_path, options_for(["fp16"], seeds=2), [])["fp16"] == "MISSED"  # only one of two seeds


def test_first_losses_are_compared_by_seed() -> None:
    ours = [result("fp32", PHONES_SIDE, 0.7, seed) for seed in (0, 1)]
    theirs = [replace(result("fp32", TORCH_SIDE, 0.7, 1), early=(2.3, 2.25))]
    assert accuracy.early_difference(ours, theirs) == "5.0e-02"
    assert not accuracy.early_difference(ours[:1], theirs)


def test_losses_are_means_since_the_last_evaluation() -> None:
    evaluations = [
        {"step": 2, "top1": 0.2, "loss": 2.0, "time": 1.0},
        {"step": 4, "top1": 0.5, "loss": 1.0, "time": 2.0},
    ]
    assert accuracy.means_between([4.0, 2.0, 1.0, 0.0], evaluations) == (3.0, 0.5)


def test_cifar_records_are_a_label_and_three_color_planes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(cifar, "BATCH", 3)
    pixels = np.random.default_rng(0).integers(0, 256, (3, cifar.PIXELS, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "test_batch.png")
    cifar.records(tmp_path / "test_batch.png", np.array([7, 0, 9], np.uint8)).tofile(tmp_path / "test_batch.bin")
    samples = cifar.load(tmp_path, cifar.TEST)
    assert samples.labels.tolist() == [7, 0, 9]
    assert np.array_equal(samples.images, pixels.reshape(3, *cifar.SHAPE))


def test_small_resnet_halves_the_feature_map_three_times() -> None:
    graph = models.build(accuracy.MODEL, 10, (32, 32, 3))
    shapes = {node.name: node.shape for node in graph.nodes}
    assert [shapes[f"block{number}.out"] for number in (1, 2, 3)] == [(16, 16, 32), (8, 8, 64), (4, 4, 128)]
    assert graph.classes == 10
