"""`clusterctl forecast`, as people and machines see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.errors import UsageError

RACK = str(Path(__file__).parents[4] / "inventory.yaml")
SMALL = ("forecast", "--model", "squeezenet_v1_1", "--batch", "4")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_json_says_that_it_is_modeled() -> None:
    found = json.loads(run(*SMALL, "--phones", "6", "--switches", "2", "--uplink", "100mbit", "--json"))
    assert found["modeled"] is True
    assert (found["phones"], found["switches"]) == (6, 2)
    (network,) = found["networks"]
    assert network["efficiency"] == pytest.approx(network["compute_s"] / network["step_s"])
    assert network["batch"] == 4


def test_the_table_says_so_too_and_names_what_is_assumed() -> None:
    reported = run(*SMALL, "-i", RACK)
    assert "Modeled training step on 138 phones and 3 switches (not measured)" in reported
    assert "Galaxy S10+, cold" in reported
    assert "85.8%" in reported


def test_the_papers_batches_are_known_by_name() -> None:
    (network,) = json.loads(run(*SMALL[:3], "--batch", "paper", "--phones", "4", "--json"))["networks"]
    assert network["batch"] == 32


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (["--batch", "x"], "--batch x"),
        (["--batch", "0"], "--batch 0"),
        (["--model", "lenet", "--batch", "paper"], "no batch size for lenet"),
        (["--phones", "2", "--switches", "3"], "--switches 3 is more than --phones 2"),
        (["--phones", "2", "--rate", "fast"], "invalid rate"),
        (["--memory", "much"], "much"),
        (["--memory", "1MB"], "needs"),
        (["--model", "resnet51"], "resnet51"),
    ],
)
def test_bad_input_is_a_usage_error(flags: list[str], reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        CliRunner().invoke(app, ["forecast", "-i", RACK, *flags], catch_exceptions=False)


@pytest.mark.parametrize("flags", [["--algorithm", "mpi"], ["--wire", "powersgd"]])
def test_only_modeled_communication_can_be_chosen(flags: list[str]) -> None:
    done = CliRunner().invoke(app, ["forecast", "-i", RACK, *flags], catch_exceptions=False)
    assert done.exit_code == 2
    assert "'auto'" in done.output
