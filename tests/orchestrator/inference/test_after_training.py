"""docs/guide/using-models.md, run as it stands: every clusterctl line of it, one after the other, on a real lab."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.labs import CLUSTERCTL, TestLab
from tests.orchestrator.launch.idx import write_idx

pytestmark = pytest.mark.lab

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "using-models.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (clusterctl .*)$", PAGE, re.MULTILINE)

FEWER = {"60": "12", "20": "4"}  # steps than a reader of the page may have the patience for


class Shell:
    """Runs the page's lines in a folder of their own, and keeps what they answer."""

    def __init__(self, lab: TestLab, here: Path) -> None:
        self._lab, self._here = lab, here
        self.printed: dict[str, str] = {}

    def run(self, line: str) -> None:
        words = shlex.split(line.replace("/usr/share/datasets/fashion-mnist", str(self._here / "fashion-mnist")))
        words = [FEWER.get(word, word) for word in words]
        command = ["env", "-C", str(self._here), *CLUSTERCTL, *words[1:]]
        done = self._lab.run(command)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        self.printed[line] = done.stdout

    def json(self, line: str) -> Any:
        return json.loads(self.printed[line])


@pytest.fixture(scope="module")
def page(provisioned_lab4: TestLab, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    here = tmp_path_factory.mktemp("after")
    write_idx(here / "fashion-mnist", train=400, test=43)
    shades = np.arange(40 * 30, dtype=np.uint32).reshape(40, 30) % 256
    Image.fromarray(shades.astype(np.uint8)).save(here / "picture.png")
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (here / "small.py").write_text(source)
    shell = Shell(provisioned_lab4, here)
    for line in COMMANDS:
        shell.run(line)
    return shell


def runs(lab: TestLab) -> dict[str, Path]:
    """Directories of the page's runs on this computer, by what is special about them."""
    found = {}
    for directory in sorted((lab.state / "clusters/lab/runs").iterdir()):
        spec = json.loads((directory / "run.json").read_text())
        if spec["data"]["name"] == "fashion":
            found["own" if spec["model_file"] else "tuned" if spec["weights"] else "first"] = directory
    return found


def test_the_page_has_every_command_there_is_after_training(page: Shell) -> None:
    verbs = {line.split()[1] for line in page.printed}
    assert {"launch", "eval", "export", "predict"} <= verbs


def test_phones_and_this_computer_judge_alike(page: Shell, provisioned_lab4: TestLab) -> None:
    events = (runs(provisioned_lab4)["first"] / "events.jsonl").read_text().splitlines()
    evaluated = [event for event in map(json.loads, events) if event["event"] == "evaluate"]
    assert [event["step"] for event in evaluated] == [4, 8, 12]
    here = page.json("clusterctl eval --data fashion --json")
    assert here["samples"] == evaluated[-1]["samples"] == 43
    assert (here["top1"], here["top5"]) == (evaluated[-1]["top1"], evaluated[-1]["top5"])
    assert here["loss"] == pytest.approx(evaluated[-1]["loss"], rel=1e-4, abs=1e-6)


def test_the_newest_checkpoint_is_here_and_none_is_on_a_phone(page: Shell, provisioned_lab4: TestLab) -> None:
    directory = runs(provisioned_lab4)["first"]
    *older, newest = sorted(path.name for path in directory.glob("*.safetensors"))
    assert newest == "checkpoint-00000012.safetensors"
    assert len(older) <= 1
    assert "optimizer.momenta" in load_file(directory / "checkpoint-00000012.safetensors")
    for writer in ("p1-01", "p2-01"):
        left = provisioned_lab4.on(writer, "ls", f".clusterctl/runs/{directory.name}").stdout
        assert "run.json" in left
        assert "safetensors" not in left, writer
    assert (directory / "tensorboard" / "events.out.tfevents.clusterctl").stat().st_size > 1000


def test_frozen_layers_stayed_and_others_learned(page: Shell, provisioned_lab4: TestLab) -> None:
    first, tuned = (
        load_file(max(runs(provisioned_lab4)[which].glob("checkpoint-*.safetensors"))) for which in ("first", "tuned")
    )
    for name in ("conv1.weight", "conv2.weight", "conv1.bias"):
        np.testing.assert_array_equal(tuned[name], first[name])
    assert (tuned["fc2.weight"] != first["fc2.weight"]).any()


def test_the_run_of_ones_own_network_can_be_used(page: Shell, provisioned_lab4: TestLab) -> None:
    assert (runs(provisioned_lab4)["own"] / "small.py").is_file()
    session = onnxruntime.InferenceSession(page._here / "small.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"images": np.zeros((3, 1, 28, 28), np.float32)})
    assert np.asarray(scores).shape == (3, 10)


def test_predictions_are_likelihoods_best_first(page: Shell) -> None:
    (answer,) = page.json("clusterctl predict picture.png --weights lenet.safetensors --top 3 --json")
    chances = [each["probability"] for each in answer["classes"]]
    assert len(chances) == 3
    assert chances == sorted(chances, reverse=True)
    assert 0 < sum(chances) <= 1
