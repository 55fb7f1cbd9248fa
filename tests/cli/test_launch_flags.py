"""The launch command's flags: made from the request, grouped, and refused before a phone is touched."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.cli.launch_flags import FLAGS
from orchestrator.cli.session import Session
from orchestrator.errors import UsageError
from orchestrator.plan.request import LaunchRequest
from orchestrator.runs.launch import Launcher
from tests.cli.test_startup import imported_by

INVENTORY = str(Path(__file__).parents[2] / "inventory.yaml")


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


@pytest.mark.usefixtures("two_fit")
@pytest.mark.parametrize(("flags", "whole"), [([], None), (["--whole"], True), (["--share"], False)])
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
        (["--whole"], "--whole: a run that is resumed"),
        (["--share"], "--share: a run that is resumed"),
    ],
)
def test_what_a_resumed_run_cannot_obey_is_refused(flags: list[str], words: str) -> None:
    ended = CliRunner().invoke(app, ["launch", "--resume", "20260101", *flags, "-i", INVENTORY])
    assert isinstance(ended.exception, UsageError)
    assert words in ended.exception.message
