"""Commands that need only files on this computer work without a lab and without an inventory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli.app import app
from orchestrator.errors import UsageError
from orchestrator.paths import ClusterState
from orchestrator.records.record import RunStore
from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict
from phone_agent.train.checkpoint import CheckpointMetadata
from tests.orchestrator.launch.samples import spec

IN_RACK, IN_LAB = "20260131-120000-lenet-00aa", "20260131-130000-lenet-00bb"
INVENTORY = """\
cluster: rack
network: {subnet: 10.77.0.0/16}
switches:
  sw1: {ports: 8, phones: [{port: 1, name: other, address: 10.77.1.1}]}
"""


@pytest.fixture(autouse=True)
def runs_of_two_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a checkpoint. The newer run is that of the lab, which is gone."""
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    for hours, (cluster, run_id) in enumerate((("rack", IN_RACK), ("lab", IN_LAB))):
        store = RunStore(ClusterState(cluster).runs)
        record = store.create(replace(spec(), run_id=run_id, created=spec().created + 3600 * hours))
        store.save(replace(record, state="done", ended=record.created + 60))
        graph = models.build("lenet")
        about = CheckpointMetadata("lenet", 10, (28, 28, 1), (28, 28, 1), (0.5,), (0.5,), tuple("0123456789"))
        path = store.directory(run_id) / "checkpoint-00000020.safetensors"
        safetensors.write(path, to_state_dict(graph, State(graph, hours)), {"format": "pt", **about.metadata()})


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_runs_of_all_clusters_are_listed_oldest_first() -> None:
    listed = json.loads(invoke("runs", "--json").stdout)
    assert [(run["run_id"], run["cluster"], run["state"]) for run in listed] == [
        (IN_RACK, "rack", "done"),
        (IN_LAB, "lab", "done"),
    ]
    text = invoke("runs").stdout
    assert "cluster" in text
    assert all(word in text for word in ("rack", "lab", IN_RACK, IN_LAB))


def test_an_inventory_selects_the_runs_of_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text(INVENTORY)
    assert [run["run_id"] for run in json.loads(invoke("runs", "--json", "-i", "rack.yaml").stdout)] == [IN_RACK]
    assert "cluster" not in invoke("runs", "-i", "rack.yaml").stdout
    assert IN_RACK in json.loads(invoke("export", "-i", "rack.yaml", "-o", "net.onnx", "--json").stdout)["from"]


@pytest.mark.parametrize(("run", "found"), [((), IN_LAB), (("20260131-12",), IN_RACK), ((IN_LAB,), IN_LAB)])
def test_a_model_of_any_cluster_is_found(run: tuple[str, ...], found: str) -> None:
    done = invoke("export", *run, "-o", "net.onnx", "--json")
    assert done.exit_code == 0
    assert found in json.loads(done.stdout)["from"]


def test_a_prefix_must_be_unique_among_all_clusters() -> None:
    done = invoke("export", "20260131")
    assert isinstance(done.exception, UsageError)
    assert done.exception.message == f"'20260131' matches 2 runs: {IN_RACK}, {IN_LAB}"


@pytest.mark.parametrize("command", ["attach", "stop", "collect-logs", "timeline"])
def test_a_command_for_phones_takes_the_inventory_of_the_run(command: str, tmp_path: Path) -> None:
    store = RunStore(ClusterState("rack").runs)
    (tmp_path / "elsewhere").mkdir()
    inventory = tmp_path / "elsewhere" / "rack.yaml"
    inventory.write_text(INVENTORY)
    store.save(replace(store.read(IN_RACK), inventory=str(inventory), state="failed"))
    done = invoke(command, IN_RACK)
    if command == "attach":  # the run is over: its files are enough
        assert IN_RACK in done.stderr
    else:
        assert str(inventory) in str(done.exception)
