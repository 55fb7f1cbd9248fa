"""The judging parts of the benchmarks that train: which turns count, what is run again, what is compared with what."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy, cifar, ddp, wires
from benchmarks.accuracy import MODEL, NAMES, PHONES_SIDE, SIDES, TORCH_SIDE, Notebook, Result, Training
from phone_agent import models
from tests.phone_agent.thread_world import ThreadWorld, on_ranks

TRAININGS = {variant.name: Training(variant, MODEL, variant.epochs) for variant in accuracy.VARIANTS}


def result(name: str, side: str, right: float, seed: int = 0) -> Result:
    judged = ({"step": 10, "top1": 0.1, "loss": 2.0}, {"step": 20, "top1": right, "loss": 1.0})
    return Result(TRAININGS[name].setting, side, seed, 128, 20, 1.5, (2.3, 2.2), (2.0, 1.5), judged, "{}")


def asked(variants: Sequence[str] = NAMES, sides: Sequence[str] = SIDES, seeds: int = 1) -> Namespace:
    return Namespace(model=MODEL, epochs=None, variants=variants, sides=sides, seeds=seeds)


def verdicts(path: Path, options: Namespace, results: Iterable[Result]) -> dict[str, str]:
    """By variant."""
    notebook = Notebook(path / "found.json")
    for each in results:
        notebook.add(each)
    told = map(str, accuracy.promises(options, notebook))
    return {line.partition(":")[0]: line.rpartition(": ")[2] for line in told}


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
    first = [_first_step(wire, steps, samples) for wire, steps in (("fp16", 10), ("powersgd", 10), ("powersgd", 9))]
    assert first[0] == first[1] != first[2]


def _first_step(wire: str, steps: int, samples: wires.Samples) -> bytes:
    def work(world: ThreadWorld) -> bytes:
        rank = wires.Rank(wires.Setting("lenet", 2, 2, steps), wire, 0, world, samples)
        next(rank.losses())
        return rank.state.values.tobytes()

    return on_ranks(2, work)[0]


def test_results_are_kept_with_the_run_that_gave_them(tmp_path: Path) -> None:
    Notebook(tmp_path / "found.json").add(result("fp32", PHONES_SIDE, 0.7))
    again, training = Notebook(tmp_path / "found.json"), TRAININGS["fp32"]
    found = again.find(training, PHONES_SIDE, 0)
    assert found is not None
    assert found.points == pytest.approx(70.0)
    assert found.run == "{}"
    assert again.find(training, TORCH_SIDE, 0) is None
    assert again.find(training, PHONES_SIDE, 1) is None


def test_results_of_other_settings_are_not_taken_for_these(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path / "found.json")
    notebook.add(result("fp32", PHONES_SIDE, 0.7))
    (tmp_path / "net.py").write_text("one")
    training, own = TRAININGS["fp32"], Training(TRAININGS["fp32"].variant, f"{tmp_path / 'net.py'}:build", 3)
    notebook.add(replace(result("fp32", PHONES_SIDE, 0.8), setting=own.setting))
    assert notebook.find(own, PHONES_SIDE, 0)
    (tmp_path / "net.py").write_text("another")
    hotter = replace(training.variant, flags=("--lr", "0.4"))
    others = (
        replace(training, epochs=4),
        replace(training, variant=hotter),
        replace(training, variant=replace(training.variant, warmup=1.0)),
        Training(training.variant, "resnet20", 3),
        Training(training.variant, own.model, 3),
    )
    assert [notebook.find(other, PHONES_SIDE, 0) for other in others] == [None] * len(others)


def test_a_file_that_does_not_tell_its_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"results": [{"variant": "fp32", "seed": 0}], "runs": {}}))
    with pytest.raises(SystemExit, match="give another --out"):
        Notebook(tmp_path / "old.json")


def test_the_results_in_the_docs_are_of_variants_there_are() -> None:
    docs = Path(__file__).parents[2] / "docs" / "results" / "accuracy.json"
    settings = {result["setting"] for result in json.loads(docs.read_text())["results"]}
    assert settings <= {training.setting for training in TRAININGS.values()}


def test_means_over_seeds_are_judged_by_pytorch_and_by_the_baseline(tmp_path: Path) -> None:
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
    assert verdicts(tmp_path, asked(seeds=2), results) == {
        "fp32": "kept",
        "fp16": "kept",
        "int8": "kept",
        "powersgd": "NOT KEPT",
        NAMES[-1]: "NOT KEPT",
    }


@pytest.mark.parametrize(("theirs", "verdict"), [(0.764, "NOT KEPT"), (0.766, "kept"), (0.776, "NOT KEPT")])
def test_phones_may_be_neither_worse_nor_better_than_pytorch(tmp_path: Path, theirs: float, verdict: str) -> None:
    results = [result("fp32", PHONES_SIDE, 0.77), result("fp32", TORCH_SIDE, theirs)]
    assert verdicts(tmp_path, asked(["fp32"]), results)["fp32"] == verdict


def test_what_was_asked_for_and_not_run_is_not_kept(tmp_path: Path) -> None:
    results = [result("fp32", PHONES_SIDE, 0.77), result("fp16", PHONES_SIDE, 0.77)]
    told = verdicts(tmp_path, asked(["fp32", "fp16", "int8"]), results)
    not_asked = f"not judged, {accuracy.NOT_ASKED}"
    assert told == {"fp32": "NOT KEPT", "fp16": "kept", "int8": "NOT KEPT", "powersgd": not_asked, NAMES[-1]: not_asked}
    assert verdicts(tmp_path, asked(["fp32"], [PHONES_SIDE]), [])["fp32"] == not_asked
    assert verdicts(tmp_path, asked(["fp16"], seeds=2), [])["fp16"] == "NOT KEPT"  # one seed is there


def test_first_losses_are_compared_by_seed() -> None:
    ours = [result("fp32", PHONES_SIDE, 0.7, seed) for seed in (0, 1)]
    theirs = [replace(result("fp32", TORCH_SIDE, 0.7, 1), early=(2.3, 2.25))]
    assert accuracy.early(ours, theirs) == "5.0e-02"
    assert not accuracy.early(ours[:1], theirs)


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
