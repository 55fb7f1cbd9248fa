"""Help of every command: panels, `-h`, examples, and choices that match the code behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from orchestrator.bench import allreduce
from orchestrator.chaos.plan import KINDS
from orchestrator.cli import choices
from orchestrator.cli.app import PANELS, app
from orchestrator.cli.help import EXPERT
from orchestrator.lab.config import Arch
from orchestrator.provision.bundle import Target
from phone_agent.api.forecast import SCHEDULED_ALGORITHMS, WIRE_FORMATS
from phone_agent.contract import device_study
from phone_agent.contract.choices import BACKENDS
from phone_agent.core.build import AARCH64_ANDROID, X86_64

MAIN = {
    "bench allreduce", "bench compute", "bench device", "bench kernels", "bench linpack", "bootstrap", "build", "chaos",
    "collect-logs", "data add", "data push", "doctor", "eval", "export", "forecast", "inventory check",
    "inventory show", "lab up", "predict", "provision", "runs", "selftest", "status", "stop", "timeline", "tune",
}  # fmt: skip


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    root: Any = group or get_command(app)
    for name, command in root.commands.items():
        full = f"{path} {name}".strip()
        yield full, command
        if hasattr(command, "commands"):
            yield from commands(command, full)


ALL = dict(commands())


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "100", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"})
    assert done.exit_code == 0, done.output
    return done.output


def test_commands_are_listed_in_panels() -> None:
    text = shown("--help")
    panels = re.findall(r"^╭─ ([^─]+) ─", text, flags=re.MULTILINE)
    assert panels == ["Options", *PANELS]
    assert {name for panel in PANELS.values() for name in panel} == {name for name in ALL if " " not in name}


@pytest.mark.parametrize("path", sorted(ALL))
def test_every_command_has_short_help_and_a_summary(path: str) -> None:
    text = shown(*path.split(), "-h")
    assert "Usage:" in text
    summary = (ALL[path].help or "").split("\n")[0]
    assert summary.endswith(".")
    assert len(summary) <= 100


@pytest.mark.parametrize("path", sorted(MAIN))
def test_main_commands_end_with_examples(path: str) -> None:
    examples = shown(*path.split(), "--help").partition("Examples")[2]
    assert f"clusterctl {path}" in " ".join(examples.split())


@pytest.mark.parametrize("path", sorted(name for name in ALL if name != "launch"))
def test_expert_options_are_the_last_panel(path: str) -> None:
    panels = re.findall(r"^╭─ ([^─]+) ─", shown(*path.split(), "--help"), flags=re.MULTILINE)
    assert EXPERT not in panels[:-1]


@pytest.mark.parametrize(
    ("choice", "known"),
    [
        (choices.AllreduceAlgorithm, allreduce.ALGORITHMS),
        (choices.Arch, [each.value for each in Arch]),
        (choices.BuildTarget, [each.value for each in Target]),
        (choices.ForecastAlgorithm, ("auto", *SCHEDULED_ALGORITHMS)),
        (choices.ForecastWire, ("auto", *WIRE_FORMATS)),
        (choices.InstructionSet, [isa.name for target in (X86_64, AARCH64_ANDROID) for isa in target.isas]),
        (choices.PlannedBackend, [name for name in BACKENDS if name != "reference"]),
        (choices.RankOrder, allreduce.ORDERS),
        (choices.Wire, allreduce.WIRES),
        (choices.Fault, KINDS),
        (choices.StudyBackend, device_study.BACKENDS),
        (choices.StudyModel, device_study.MODELS),
        (choices.StudyPart, device_study.PARTS),
    ],
)
def test_choices_are_those_of_the_code(choice: Any, known: Any) -> None:
    offered = get_args(choice) or [member.value for member in choice]
    assert sorted(offered) == sorted(known)


def test_a_wrong_choice_is_a_usage_error_that_lists_the_right_ones() -> None:
    done = CliRunner().invoke(app, ["bench", "allreduce", "--wire", "fp8"], env={"COLUMNS": "100"})
    assert done.exit_code == 2
    assert "'fp32', 'fp16', 'bf16', 'int8'" in done.output
