"""Evaluation and prediction with a trained model on this computer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.data.sources.folder import decode
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.inference.evaluate import evaluate, predict, read_image
from orchestrator.inference.model import Preprocessing, TrainedModel, open_trained
from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.contract.dataset_manifest import MANIFEST_FILE
from phone_agent.contract.files import write_json
from phone_agent.data.sampling import Normalizer
from phone_agent.data.staged import Staged
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.graph import Dense, Graph, GraphBuilder
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict
from phone_agent.train.checkpoint import CheckpointMetadata
from phone_agent.train.evaluate import metric_sums
from tests.phone_agent.datasets import CLASSES, SHAPE, stage

OWN = """\
from phone_agent.nn.graph import Dense, GraphBuilder


def build(classes, shape):
    net = GraphBuilder(shape)
    net.add("fc", Dense(classes))
    return net.build()
"""
ABOUT = CheckpointMetadata("net.py:build", CLASSES, SHAPE, SHAPE, (0.4,), (0.3,), ("ant", "bee", "[red]cat", "dog"))


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of weights, and a dataset `bugs` on this computer."""
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    stage_named(tmp_path / "state" / "data" / "bugs", ABOUT.class_names)
    (tmp_path / "net.py").write_text(OWN)
    path = tmp_path / "w.safetensors"
    safetensors.write(path, to_state_dict(graph(), State(graph(), seed=2)), {"format": "pt", **ABOUT.metadata()})
    return path


def stage_named(directory: Path, class_names: tuple[str, ...], test: int = 41) -> None:
    manifest = stage(directory, train=60, test=test)
    write_json(directory / MANIFEST_FILE, replace(manifest, class_names=class_names).to_json())


def graph() -> Graph:
    net = GraphBuilder(SHAPE)
    net.add("fc", Dense(CLASSES))
    return net.build()


def trained(weights: Path) -> TrainedModel:
    return open_trained(weights, f"{weights.parent / 'net.py'}:build")


def test_every_held_out_sample_counts_once(weights: Path) -> None:
    found = evaluate(trained(weights), "bugs", threads=1)
    directory = weights.parent / "state" / "data" / "bugs"
    manifest = stage(weights.parent / "again", train=60, test=41)
    images, labels = Staged(directory, manifest, manifest.test).take(np.arange(41))
    kernel = State(graph(), seed=2).packing.views(State(graph(), seed=2).values)
    normal = (images.reshape(41, -1) / 255 - 0.4) / 0.3
    loss, top1, top5, samples = metric_sums(normal @ kernel["fc.weight"] + kernel["fc.bias"], labels)
    assert (found.samples, found.top1, found.top5) == (samples, top1 / 41, top5 / 41)
    assert found.loss == pytest.approx(loss / 41, rel=1e-4)


def test_this_computer_prepares_images_as_phones_do() -> None:
    data = Synthetic(5, (9, 12, 3), 4, seed=1)
    images, _ = data.take(np.arange(5))
    ours = Preprocessing(tuple(data.mean.tolist()), tuple(data.std.tolist()), (6, 7, 3)).normalize(images)
    np.testing.assert_allclose(ours, Normalizer(data, 5, (6, 7, 3)).normalize(images), rtol=1e-5, atol=1e-6)


def test_a_dataset_that_does_not_fit_is_refused(weights: Path) -> None:
    other = trained(weights)
    data = weights.parent / "state" / "data"
    stage_named(data / "trained-only", ABOUT.class_names, test=0)
    many = stage(data / "many", train=60, test=41)
    write_json(data / "many" / MANIFEST_FILE, replace(many, class_names=(*many.class_names, "fifth")).to_json())
    with pytest.raises(UsageError, match=f"many has {CLASSES + 1} classes, the model {CLASSES}"):
        evaluate(other, "many", threads=1)
    with pytest.raises(UsageError, match="no held-out samples"):
        evaluate(other, "trained-only", threads=1)
    with pytest.raises(UsageError, match="no dataset named 'birds'"):
        evaluate(other, "birds", threads=1)


@pytest.mark.parametrize(
    ("class_names", "message"),
    [
        (("bee", "ant", "[red]cat", "dog"), "in another order: class 0 is 'bee', the model learned 'ant'"),
        (
            ("ant", "bee", "cow", "dog"),
            r"other classes than the model: class 2 is 'cow', the model learned '\[red\]cat'",
        ),
    ],
)
def test_a_dataset_with_other_classes_is_refused(weights: Path, class_names: tuple[str, ...], message: str) -> None:
    stage_named(weights.parent / "state" / "data" / "others", class_names)
    with pytest.raises(UsageError, match=message) as error:
        evaluate(trained(weights), "others", threads=1)
    assert str(error.value.remedy).startswith("choose the dataset that the model was trained on (--data)")


def test_weights_without_class_names_are_compared_by_their_number(weights: Path) -> None:
    unnamed = trained(weights)
    unnamed = replace(unnamed, about=replace(unnamed.about, class_names=()))
    assert evaluate(unnamed, "bugs", threads=1) == evaluate(trained(weights), "bugs", threads=1)


def test_a_damaged_dataset_of_this_computer_is_made_again(weights: Path) -> None:
    shard = weights.parent / "state/data/bugs/test-00000.shard"
    raw = bytearray(shard.read_bytes())
    raw[500] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(ClusterctlError, match=r"test-00000\.shard is damaged$") as raised:
        evaluate(trained(weights), "bugs", threads=1)
    assert raised.value.remedy == "clusterctl data remove bugs, then add it again"


def test_weights_that_are_not_there_are_no_run(tmp_path: Path) -> None:
    asked = CliRunner().invoke(app, ["predict", str(tmp_path / "a.png"), "--weights", "typo", "--model", "lenet"])
    assert str(asked.exception) == "typo cannot be read: No such file or directory"


def test_pictures_are_what_the_network_was_shown(tmp_path: Path) -> None:
    pixels = np.zeros((40, 20, 3), np.uint8)
    pixels[10:30, :, 0] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", (10, 10, 3))[:, :, 0].min() > 200
    gray = read_image(tmp_path / "a.png", (10, 8, 1))
    assert (gray.shape, int(gray[5, 4, 0])) == ((10, 8, 1), 76)
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(UsageError, match=r"b\.png is not a readable image"):
        read_image(tmp_path / "b.png", (10, 10, 3))


FOR_IMAGENET = OWN.replace("classes, shape", "classes=3, shape=(224, 224, 3)")


def test_weights_from_elsewhere_see_pictures_as_a_dataset_of_256_pixels_shows_them(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FOR_IMAGENET)
    net = GraphBuilder((224, 224, 3))
    net.add("fc", Dense(3))
    built = net.build()
    safetensors.write(tmp_path / "w.safetensors", to_state_dict(built, State(built, seed=2)))
    pixels = np.random.default_rng(1).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = open_trained(tmp_path / "w.safetensors", f"{tmp_path / 'net.py'}:build")
    stored = decode(tmp_path / "a.png", 256)
    scores = found.compile(1, 1).forward(found.preprocessing(1).normalize(stored[None]))[0].astype(np.float64)
    chances = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    (guesses,) = predict(found, [tmp_path / "a.png"], top=3, threads=1)
    assert {guess.label: guess.probability for guess in guesses} == pytest.approx(dict(enumerate(chances)), abs=1e-6)


@pytest.mark.parametrize(("model", "side"), [("squeezenet_v1_1", 256), ("inception_v3", 342), ("resnet20", 32)])
def test_pictures_are_stored_as_is_usual_for_a_network(tmp_path: Path, model: str, side: int) -> None:
    built = models.build(model)
    safetensors.write(tmp_path / "w.safetensors", to_state_dict(built, State(built, seed=2)))
    assert open_trained(tmp_path / "w.safetensors", model).stored_shape == (side, side, 3)


def test_the_likeliest_classes_come_first(weights: Path, tmp_path: Path) -> None:
    paths = []
    for shade in range(35):
        paths.append(tmp_path / f"{shade}.png")
        Image.fromarray(np.full((16, 16), shade * 7, np.uint8)).save(paths[-1])
    guesses = predict(trained(weights), paths, top=3, threads=1)
    assert [len(each) for each in guesses] == [3] * 35
    for path, each in zip(paths, guesses, strict=True):
        (alone,) = predict(trained(weights), [path], top=4, threads=1)
        assert [guess.label for guess in alone[:3]] == [guess.label for guess in each]
        assert sum(guess.probability for guess in alone) == pytest.approx(1)


def test_the_commands_say_it(weights: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 90, np.uint8)).save(tmp_path / "a.png")
    model = f"{weights.parent / 'net.py'}:build"
    evaluated = CliRunner().invoke(app, ["eval", str(weights), "--model", model, "--data", "bugs", "--json"])
    assert json.loads(evaluated.stdout)["samples"] == 41
    printed = CliRunner().invoke(app, ["eval", str(weights), "--model", model, "--data", "bugs"])
    assert "41 images of bugs" in printed.stdout
    asked = ["predict", str(tmp_path / "a.png"), "--weights", str(weights), "--model", model]
    (answer,) = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert {each["name"] for each in answer["classes"]} == set(ABOUT.class_names)
    assert "[red]cat" in CliRunner().invoke(app, asked).stdout
    nothing = CliRunner().invoke(app, ["eval", str(weights), "--model", model])
    assert isinstance(nothing.exception, UsageError)
