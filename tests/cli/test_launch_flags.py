"""The launch command's flags: made from the request, grouped, and refused before a phone is touched."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.cli.launch_flags import FLAGS
from orchestrator.errors import UsageError
from orchestrator.plan.request import LaunchRequest
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


@pytest.mark.parametrize(("flags", "words"), [(["--dry-run"], "would start one"), (["--data", "cifar"], "own samples")])
def test_what_a_resumed_run_cannot_obey_is_refused(flags: list[str], words: str) -> None:
    ended = CliRunner().invoke(app, ["launch", "--resume", "20260101", *flags, "-i", INVENTORY])
    assert isinstance(ended.exception, UsageError)
    assert words in ended.exception.message
