"""The flags of `launch`: made from the request, grouped in panels, checked before a phone is involved."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from orchestrator.cli.app import app
from orchestrator.cli.help import EXPERT
from orchestrator.cli.launch_flags import PANELS
from orchestrator.cli.session import Session
from orchestrator.errors import UsageError
from orchestrator.launch.context import LaunchContext
from orchestrator.launch.defaults import DEFAULTS
from orchestrator.launch.request import flag_of, option_paths
from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.contract.choices import MAX_THREADS
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict
from phone_agent.train.checkpoint import CheckpointMetadata
from tests.orchestrator.cli.test_startup import imported_by
from tests.orchestrator.launch.idx import write_idx

INVENTORY = str(Path(__file__).parents[3] / "inventory.yaml")


def launch(*arguments: str, inventory: str | None = INVENTORY, width: int = 200) -> Result:
    where = ["-i", inventory] if inventory else []
    return CliRunner().invoke(app, ["launch", *arguments, *where], env={"COLUMNS": str(width)})


def launch_parameters() -> dict[str, Any]:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    return {parameter.name or "": parameter for parameter in command.commands["launch"].params}


def test_every_option_is_a_flag_in_one_panel() -> None:
    flags = [path for panel in PANELS.values() for path in panel]
    assert sorted(flags) == sorted(option_paths())


def test_flags_are_named_as_in_messages() -> None:
    parameters = launch_parameters()
    for path in option_paths():
        flag = parameters[path.replace(".", "_")]
        assert flag_of(path, value=True) in flag.opts
        assert flag_of(path, value=False) in (flag.secondary_opts or flag.opts)


def test_help_has_panels_examples_and_defaults_and_imports_nothing_heavy() -> None:
    shown = launch("--help", inventory=None).output
    titles = ["Model and data", "Optimizer", "Schedule", "Communication", "Compute", "Recovery", "Output", EXPERT]
    positions = [shown.index(f"─ {title} ─") for title in titles]
    assert max(positions) == positions[-1], "expert options come last"
    for words in ("--recipe", "--warmup-epochs", "--no-overlap", "--shard-data", "N|auto", "--lr", "Examples"):
        assert words in shown
    assert f"Default: {DEFAULTS['optimizer.learning_rate']:g}." in shown
    assert not imported_by("launch", "--help") & {"numpy", "yaml", "paramiko"}


@pytest.mark.parametrize(
    ("text", "steps", "minutes"),
    [("500", 500, 0.0), ("0", 0, 0.0), ("90s", 0, 1.5), ("10min", 0, 10.0), ("2h", 0, 120.0)],
)
@pytest.mark.usefixtures("two_fit")
def test_checkpoint_interval_in_steps_or_time(text: str, steps: int, minutes: float) -> None:
    shown = launch("--data", "synthetic", "--checkpoint-every", text, "--dry-run", "--json")
    recovery = json.loads(shown.stdout)["run"]["recovery"]
    assert (recovery["checkpoint_every"], recovery["checkpoint_minutes"]) == (steps, minutes)


def test_thread_limit_is_that_of_the_core() -> None:
    assert PANELS["Compute"]["compute.threads"][1]["max"] == MAX_THREADS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--batch", "many"], "nor auto"),
        (["--batch", "0"], "positive integer"),
        (["--warmup-steps", "soon"], "valid integer"),
        (["--warmup-epochs", "-3"], "--warmup-epochs"),
        (["--memory", "lots"], "lots"),
        (["--bucket-size", "-"], "-"),
        (["--label-smoothing", "2"], "--label-smoothing"),
        (["--threads", "65"], "--threads"),
        (["--optimizer", "adam"], "'lamb'"),
        (["--backend", "abacus"], "'reference'"),
        (["--augment", "imagnet"], "'imagenet'"),
        (["--activations", "fp8"], "'fp16'"),
        (["--checkpoint-every", "often"], "nor a time such as 90s, 30min or 2h"),
        (["--checkpoint-every", "0min"], "not between 1s and 168h"),
    ],
)
def test_invalid_values_are_usage_errors(flags: list[str], words: str) -> None:
    done = launch(*flags)
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--recipe", "nope"], "resnet50-imagenet-lars: "),
        (["--batch", "auto", "--global-batch", "4"], "cannot be combined"),
        (["--schedule", "step"], "number of steps"),
        (["--wire", "int8", "--algorithm", "mpi"], "fp32 only"),
        (["--bucket-size", "65535"], "below 64KiB"),
        (["--bucket-size", "4MB", "--memory", "1GB", "--freeze", "a", "--freeze", "b", "--lr", "inf"], "--lr inf"),
        (["--spare", "@all"], "--spare @all leaves no phone"),
        (["--limit", "sw1:1-4", "--min-phones", "5"], "only 4 phones take part"),
    ],
)
def test_invalid_requests_fail_before_a_phone_is_contacted(flags: list[str], words: str) -> None:
    refused = launch(*flags)
    assert isinstance(refused.exception, UsageError)
    assert words in str(refused.exception)


class ReachedError(Exception):
    """Carries what would be done with the data."""


@pytest.fixture
def two_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two phones pass the preflight without being contacted."""

    def fit(context: LaunchContext, *_: Any) -> SimpleNamespace:
        return SimpleNamespace(fit=context.cluster.phones[:2], memory={})

    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    monkeypatch.setattr(Session, "fleet", lambda _: nullcontext())
    monkeypatch.setattr("orchestrator.cli.launch._fit_phones", fit)


@pytest.mark.usefixtures("two_fit")
def test_warm_up_longer_than_the_run_is_a_warning() -> None:
    shown = launch("--data", "synthetic", "--warmup-steps", "200", "--dry-run")
    assert shown.exit_code == 0
    assert "warms up for 200 steps" in " ".join(shown.stderr.split())


@pytest.mark.usefixtures("two_fit")
def test_random_images_are_a_warning_unless_asked_for() -> None:
    words = "no --data given: random images (32x32). Results are meaningless; use this to measure speed only."
    shown = launch("--model", "resnet20", "--dry-run")
    assert shown.exit_code == 0
    assert words in " ".join(shown.stderr.split())
    assert "clusterctl data add" in " ".join(shown.stderr.split())
    assert words not in " ".join(launch("--model", "resnet20", "--data", "synthetic", "--dry-run").stderr.split())


@pytest.mark.usefixtures("two_fit")
def test_unreachable_default_inventory_suggests_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    (tmp_path / "inventory.yaml").write_text(
        f"cluster: rack\nssh: {{port: {port}}}\nnetwork: {{subnet: 127.0.0.0/8}}\n"
        'switches: {sw1: {ports: 2, phones: [{ports: 1-2, name: "p1-{port:02}", address: "127.77.1.{port}"}]}}\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    refused = launch("--data", "synthetic", inventory=None)
    assert isinstance(refused.exception, UsageError), refused.output
    assert refused.exception.message.startswith("cannot reach any of the 2 phones of ./inventory.yaml")
    assert refused.exception.remedy == "clusterctl lab up --phones 4"


@pytest.fixture
def dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of samples that must not be imported."""
    write_idx(tmp_path / "dots", train=200, test=20)
    monkeypatch.setattr("orchestrator.data.add.add", lambda *_, **__: pytest.fail("it was imported"))
    return tmp_path / "dots"


@pytest.mark.usefixtures("two_fit")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--weights", "absent.safetensors"], "--weights absent.safetensors: "),
        (["--weights", "absent.npz"], "absent.npz is not an .npz file"),
        (["--weights", "old.pth"], "old.pth is a pickle"),
        (["--freeze", "layer9"], "--freeze: no trainable layer of lenet matches 'layer9'"),
        (["--model", "alexnet"], "alexnet does not support 28x28x1"),
        (["--new-head"], "--new-head has no effect without --weights"),
    ],
)
def test_invalid_requests_fail_before_a_folder_is_imported(dots: Path, flags: list[str], words: str) -> None:
    refused = launch("--data", str(dots), *flags)
    assert isinstance(refused.exception, UsageError)
    assert words in str(refused.exception)


@pytest.mark.usefixtures("two_fit")
def test_last_layer_for_other_classes_is_initialized_and_reported(dots: Path, tmp_path: Path) -> None:
    graph = models.build("lenet")
    names = tuple(f"kind {number}" for number in range(10))
    about = CheckpointMetadata("lenet", 10, graph.shape, graph.shape, (0.5,), (0.5,), names).metadata()
    safetensors.write(tmp_path / "w.safetensors", to_state_dict(graph, State(graph, 1)), {"format": "pt", **about})
    flags = ["--data", str(dots), "--weights", str(tmp_path / "w.safetensors"), "--dry-run"]
    shown = launch(*flags)
    assert shown.exit_code == 0, shown.output
    assert "initialized at random for 10 classes: fc2.weight, fc2.bias; " in " ".join(shown.stderr.split())
    kept = launch(*flags, "--keep-head")
    assert kept.exit_code == 0, kept.output
    assert "initialized at random" not in " ".join(kept.stderr.split())


@pytest.mark.usefixtures("two_fit")
def test_dry_run_counts_samples_without_importing_them(dots: Path) -> None:
    shown = launch("--data", str(dots), "--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    data = json.loads(shown.stdout)["run"]["data"]
    assert (data["name"], data["samples"], data["test_samples"], data["classes"]) == ("dots", 200, 20, 10)
    assert "will be imported as the dataset 'dots'" in " ".join(shown.stderr.split())


@pytest.mark.usefixtures("two_fit")
def test_each_part_of_a_launch_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(module: str, name: str) -> None:
        original: Callable[..., Any] = getattr(__import__(module, fromlist=[name]), name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(f"{module}.{name}", call)

    for name in ("find_dataset", "build_graph", "merge_options"):
        counted("orchestrator.launch.resolve", name)
    assert launch("--data", "synthetic", "--dry-run").exit_code == 0
    assert sorted(calls) == ["build_graph", "find_dataset", "merge_options"]


@pytest.mark.usefixtures("two_fit")
@pytest.mark.parametrize(("flags", "replicate"), [([], None), (["--replicate-data"], True), (["--shard-data"], False)])
def test_data_placement_reaches_staging(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], *, replicate: bool | None
) -> None:
    def push_data(*_: Any, replicate: bool | None) -> None:
        raise ReachedError(replicate)

    monkeypatch.setattr("orchestrator.launch.stage.push_data", push_data)
    monkeypatch.setattr("orchestrator.supervisor.service.start_supervisor", lambda *_: None)
    ended = launch("--data", "synthetic", *flags)
    assert isinstance(ended.exception, ReachedError)
    assert ended.exception.args == (replicate,)


def test_dry_run_and_resume_exclude_each_other() -> None:
    ended = launch("--resume", "20260101", "--dry-run")
    assert isinstance(ended.exception, UsageError)
    assert ended.exception.message == "--dry-run cannot be combined with --resume"


@pytest.mark.parametrize(
    "given",
    [
        "--keep-head",
        "--new-head",
        "--no-overlap",
        "--activations fp16",
        "--lr 0.1",
        "--bucket-size 4MB",
        "--memory 1GB",
        "--freeze fc*",
        "--data cifar",
        "--replicate-data",
        "--shard-data",
    ],
)
def test_flags_that_a_resumed_run_cannot_change_fail(given: str) -> None:
    ended = launch("--resume", "20260101", *given.split())
    assert isinstance(ended.exception, UsageError)
    flag, *_ = given.split()
    assert ended.exception.message == f"--resume continues with the options of the run: {flag} cannot change"
