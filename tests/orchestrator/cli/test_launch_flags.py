"""The launch command's flags: made from the request, grouped, and refused before a phone is touched."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.cli.launch_flags import FLAGS
from orchestrator.cli.session import Session
from orchestrator.errors import UsageError
from orchestrator.launch.launcher import Launcher
from orchestrator.launch.request import LaunchRequest, flag_of
from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict
from phone_agent.train.checkpoint import About
from tests.orchestrator.cli.test_startup import imported_by
from tests.orchestrator.launch.idx import write_idx

INVENTORY = str(Path(__file__).parents[3] / "inventory.yaml")


def test_every_field_is_a_flag() -> None:
    assert set(FLAGS) == {each.name for each in fields(LaunchRequest)}


def test_help_groups_the_flags_and_imports_nothing_heavy() -> None:
    shown = CliRunner().invoke(app, ["launch", "--help"], env={"COLUMNS": "200"}).output
    for words in ("Learning", "Between phones", "How much", "--recipe", "--warmup", "--no-overlap", "N|auto", "--lr"):
        assert words in shown
    assert not imported_by("launch", "--help") & {"numpy", "yaml", "paramiko"}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--batch", "many"], "nor auto"),
        (["--batch", "0"], "from 1 on"),
        (["--warmup", "soon"], "neither a number of steps"),
        (["--warmup", "-3"], "less than nothing"),
        (["--memory", "lots"], "lots"),
        (["--bucket", "-"], "-"),
        (["--label-smoothing", "2"], "--label-smoothing"),
        (["--threads", "65"], "--threads"),
    ],
)
def test_bad_values_are_usage(flags: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["launch", "-i", INVENTORY, *flags], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--recipe", "nope"], "resnet50-imagenet-lars: "),
        (["--batch", "auto", "--global-batch", "4"], "exclude each other"),
        (["--optimizer", "adam"], "lamb"),
        (["--schedule", "step"], "how many steps"),
        (["--wire", "int8", "--algorithm", "mpi"], "fp32 only"),
        (["--bucket", "65535"], "below 64KiB"),
        (["--bucket", "4MB", "--memory", "1GB", "--freeze", "a", "--freeze", "b", "--backend", "abacus"], "reference"),
    ],
)
def test_requests_that_cannot_be_are_refused_before_a_phone_is_asked(flags: list[str], words: str) -> None:
    refused = CliRunner().invoke(app, ["launch", "-i", INVENTORY, *flags])
    assert isinstance(refused.exception, UsageError)
    assert words in str(refused.exception)


@pytest.mark.parametrize("flag", ["--new-head", "--keep-head"])
def test_a_head_is_one_of_given_weights(flag: str) -> None:
    refused = CliRunner().invoke(app, ["launch", "-i", INVENTORY, flag])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.message == f"{flag} says what becomes of given weights"


class ReachedError(Exception):
    """What a launch would do with the samples."""


@pytest.fixture
def two_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Phones that nobody has to reach."""

    def fit(launcher: Launcher, *_: Any) -> SimpleNamespace:
        return SimpleNamespace(fit=launcher.cluster.phones[:2], memory={})

    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    monkeypatch.setattr(Session, "fleet", lambda _: nullcontext())
    monkeypatch.setattr("orchestrator.cli.launch._fit_phones", fit)


@pytest.mark.usefixtures("two_fit")
def test_a_rate_that_only_rises_is_a_warning_before_anything_is_touched() -> None:
    shown = CliRunner().invoke(app, ["launch", "--data", "synthetic", "--warmup", "200", "--dry-run", "-i", INVENTORY])
    assert shown.exit_code == 0
    assert "rises for 200 steps" in " ".join(shown.stderr.split())


@pytest.fixture
def dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of samples that nobody may add to the store."""
    write_idx(tmp_path / "dots", train=200, test=20)
    monkeypatch.setattr("orchestrator.data.add.add", lambda *_, **__: pytest.fail("it was added"))
    return tmp_path / "dots"


@pytest.mark.usefixtures("two_fit")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--augment", "imagnet"], "no augmentation 'imagnet'; there is: none, flip, cifar, imagenet"),
        (["--weights", "absent.safetensors"], "--weights absent.safetensors: "),
        (["--weights", "absent.npz"], "absent.npz is not an .npz file"),
        (["--weights", "old.pth"], "old.pth is a pickle"),
        (["--freeze", "layer9"], "--freeze: no layer of lenet that learns fits 'layer9'"),
        (["--model", "alexnet"], "alexnet does not support 28x28x1 images"),
    ],
)
def test_what_cannot_be_is_refused_before_samples_are_added(dots: Path, flags: list[str], words: str) -> None:
    refused = CliRunner().invoke(app, ["launch", "--data", str(dots), *flags, "-i", INVENTORY])
    assert isinstance(refused.exception, UsageError)
    assert words in str(refused.exception)


@pytest.mark.usefixtures("two_fit")
def test_a_head_that_knew_other_classes_starts_anew_and_it_is_told(dots: Path, tmp_path: Path) -> None:
    graph = models.build("lenet")
    names = tuple(f"kind {number}" for number in range(10))
    about = About("lenet", 10, graph.shape, graph.shape, (0.5,), (0.5,), names).metadata()
    safetensors.write(tmp_path / "w.safetensors", to_state_dict(graph, State(graph, 1)), {"format": "pt", **about})
    flags = ["--data", str(dots), "--weights", str(tmp_path / "w.safetensors"), "--dry-run", "-i", INVENTORY]
    shown = CliRunner().invoke(app, ["launch", *flags])
    assert shown.exit_code == 0, shown.output
    assert "starting anew, for 10 classes: fc2.weight, fc2.bias; all else as given" in " ".join(shown.stderr.split())
    kept = CliRunner().invoke(app, ["launch", *flags, "--keep-head"])
    assert kept.exit_code == 0, kept.output
    assert "starting anew" not in " ".join(kept.stderr.split())


@pytest.mark.usefixtures("two_fit")
def test_a_plan_counts_samples_and_adds_none(dots: Path) -> None:
    shown = CliRunner().invoke(app, ["launch", "--data", str(dots), "--dry-run", "--json", "-i", INVENTORY])
    assert shown.exit_code == 0, shown.output
    data = json.loads(shown.stdout)["run"]["data"]
    assert (data["name"], data["samples"], data["test_samples"], data["classes"]) == ("dots", 200, 20, 10)
    assert "will be the dataset 'dots'" in " ".join(shown.stderr.split())


@pytest.mark.usefixtures("two_fit")
@pytest.mark.parametrize(("flags", "whole"), [([], None), (["--replicate-data"], True), (["--shard-data"], False)])
def test_who_is_to_have_which_samples_reaches_the_launch(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], *, whole: bool | None
) -> None:
    def run(*_: Any, whole: bool | None) -> None:
        raise ReachedError(whole)

    monkeypatch.setattr(Launcher, "run", run)
    ended = CliRunner().invoke(app, ["launch", "--data", "synthetic", *flags, "-i", INVENTORY])
    assert isinstance(ended.exception, ReachedError)
    assert ended.exception.args == (whole,)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dry-run"], "would start one"),
        (["--data", "cifar"], "own samples"),
        (["--replicate-data"], "--replicate-data: a run that is resumed"),
        (["--shard-data"], "--shard-data: a run that is resumed"),
    ],
)
def test_what_a_resumed_run_cannot_obey_is_refused(flags: list[str], words: str) -> None:
    ended = CliRunner().invoke(app, ["launch", "--resume", "20260101", *flags, "-i", INVENTORY])
    assert isinstance(ended.exception, UsageError)
    assert words in ended.exception.message


@pytest.mark.parametrize(
    "given",
    ["--keep-head", "--new-head", "--no-overlap", "--half", "--lr 0.1", "--bucket 4MB", "--memory 1GB", "--freeze fc*"],
)
def test_what_a_resumed_run_cannot_change_is_named_as_it_was_given(given: str) -> None:
    ended = CliRunner().invoke(app, ["launch", "--resume", "20260101", *given.split(), "-i", INVENTORY])
    assert isinstance(ended.exception, UsageError)
    flag, *_ = given.split()
    assert ended.exception.message == f"--resume goes on as the run was: {flag} cannot change"


def test_every_flag_is_named_as_the_command_line_has_it() -> None:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    flags = {each.name: each for each in command.commands["launch"].params if each.name in FLAGS}
    for name, flag in flags.items():
        assert flag_of(name, value=True) in flag.opts
        assert flag_of(name, value=False) in (flag.secondary_opts or flag.opts)
    assert set(flags) == set(FLAGS)
