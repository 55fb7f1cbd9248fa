"""Checkpoint files: contents, restoring, and full disks."""

from __future__ import annotations

import json
import resource
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import numpy as library

from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.weights import from_state_dict, to_state_dict
from phone_agent.train import checkpoint
from phone_agent.train.checkpoint import CheckpointError, CheckpointWriter
from tests.phone_agent.phones import run_spec

NAMES = tuple(map(str, range(10)))


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))


def network() -> tuple[Graph, State]:
    graph = models.build("resnet20", 10, (32, 32, 3), 0.25)
    state = State(graph, seed=1)
    state.momenta[...] = np.arange(state.momenta.size)
    state.statistics += 0.25
    return graph, state


def saver(directory: Path, graph: Graph, state: State, events: RecordedEvents) -> CheckpointWriter:
    data = Synthetic(100, (28, 28, 1), 10, seed=0)
    return CheckpointWriter(directory, graph, checkpoint.build_metadata(run_spec((4,)), state, data), events)


def test_checkpoint_restores_all_state(tmp_path: Path) -> None:
    graph, state = network()
    events = RecordedEvents()
    saving = saver(tmp_path, graph, state, events)
    saving.save(7, state, {"momenta": state.momenta, "second_momenta": state.momenta * 2})
    saving.close()
    (event, fields) = events.events[0]
    assert (event, fields["step"], fields["file"]) == ("checkpoint", 7, "checkpoint-00000007.safetensors")
    found = checkpoint.read(tmp_path / fields["file"])
    other = State(graph, seed=2)
    from_state_dict(graph, other, found.weights)
    np.testing.assert_array_equal(other.values, state.values)
    np.testing.assert_array_equal(other.statistics, state.statistics)
    np.testing.assert_array_equal(found.optimizer_state["momenta"], state.momenta)
    np.testing.assert_array_equal(found.optimizer_state["second_momenta"], 2 * state.momenta)
    about = found.info
    assert about.run == run_spec((4,))
    assert (about.step, about.classes, about.shape) == (7, 10, (28, 28, 1))
    assert (about.mean, about.std, about.class_names) == ((0.5,), (0.25,), NAMES)
    assert about.model == "lenet"
    metadata = safetensors.read(tmp_path / fields["file"]).metadata
    assert json.loads(metadata["packing"]) == list(state.packing.slots)


def test_checkpoint_uses_torchvision_names(tmp_path: Path) -> None:
    graph, state = network()
    saving = saver(tmp_path, graph, state, RecordedEvents())
    saving.save(7, state, {"momenta": state.momenta})
    saving.close()
    theirs = library.load_file(tmp_path / "checkpoint-00000007.safetensors")
    wanted = to_state_dict(graph, state)
    assert set(theirs) == {*wanted, "optimizer.momenta"}
    for name, value in wanted.items():
        np.testing.assert_array_equal(theirs[name], value)


def test_training_continues_during_the_write(tmp_path: Path) -> None:
    graph, state = network()
    before = to_state_dict(graph, state)
    entered, go_on = threading.Event(), threading.Event()

    def on_event(_name: str, **_fields: Any) -> None:
        entered.set()
        assert go_on.wait(60)

    saving = CheckpointWriter(tmp_path, graph, {}, on_event)
    saving.save(1, state, {"momenta": state.momenta})
    state.values[...] = state.momenta[...] = state.statistics[...] = 7
    assert entered.wait(60)
    go_on.set()
    saving.close()
    found = safetensors.read(tmp_path / "checkpoint-00000001.safetensors").tensors
    np.testing.assert_array_equal(found["optimizer.momenta"], np.arange(state.momenta.size))
    for name, value in before.items():
        np.testing.assert_array_equal(found[name], value)


def test_checkpoint_is_written_without_a_thread_if_none_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (graph, state), recorded = network(), RecordedEvents()
    saving = saver(tmp_path, graph, state, recorded)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    saving.save(3, state, {})
    saving.close()
    assert (tmp_path / "checkpoint-00000003.safetensors").is_file()
    assert [name for name, _ in recorded.events] == ["checkpoint"]


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    graph, state = network()
    saving = saver(tmp_path, graph, state, RecordedEvents())
    for step in (9, 10, 100, 2000):
        saving.save(step, state, {})
    saving.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-00000100.json",
        "checkpoint-00000100.safetensors",
        "checkpoint-00002000.json",
        "checkpoint-00002000.safetensors",
    ]


def test_partial_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    graph, state = network()
    saver(tmp_path, graph, state, RecordedEvents())
    names = [".checkpoint-00000007.safetensors.k2j4", "checkpoint-00000006.safetensors", ".other"]
    for name in names:
        (tmp_path / name).touch()
    saver(tmp_path, graph, state, RecordedEvents())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other", "checkpoint-00000006.safetensors"]


def test_saving_takes_memory_for_one_copy(tmp_path: Path) -> None:
    """For a network whose dense layer reads an image, so that its layout in the file differs."""
    graph = models.build("alexnet", 10, (64, 64, 3), 0.5)
    state = State(graph, seed=1)
    saving = CheckpointWriter(tmp_path, graph, {}, RecordedEvents())
    tracemalloc.start()
    try:
        saving.save(1, state, {"momenta": state.momenta})
        saving.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.1 * state.values.nbytes


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Like a full disk: the write fails half-way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_a_warning_and_leaves_no_partial_file(tmp_path: Path) -> None:
    graph, state = network()
    events = RecordedEvents()
    saving = saver(tmp_path, graph, state, events)
    saving.save(1, state, {})
    saving.close()
    with files_no_larger_than(20_000):
        saving.save(2, state, {})
        saving.close()
    saving.save(3, state, {})
    saving.close()
    assert [name for name, _ in events.events] == ["checkpoint", "warning", "checkpoint"]
    assert events.events[1][1]["message"].startswith("checkpoint checkpoint-00000002.safetensors was not written: File")
    assert {path.stem for path in tmp_path.iterdir()} == {"checkpoint-00000001", "checkpoint-00000003"}


def test_bug_in_the_writer_is_raised(tmp_path: Path) -> None:
    graph, state = network()
    saving = saver(tmp_path, graph, state, RecordedEvents())
    saving.save(1, state, {"complex": np.zeros(3, complex)})
    with pytest.raises(safetensors.SafetensorsError, match="complex"):
        saving.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "99"}, "schema '99'"),
        ({"shape": "[1, 2]"}, "not enough values"),
        ({"shape": "[28, 99999999, 1]"}, "99999999"),
        ({"stored_shape": "[28, 0, 1]"}, "[28, 0, 1]"),
        ({"mean": "[NaN]"}, "NaN"),
        ({"mean": "[0.5, 0.5]"}, "do not have 1 channels"),
        ({"std": "[0.0]"}, "std: 0.0"),
        ({"classes": "0"}, "classes: 0"),
        ({"run": "{}"}, "run.json lacks"),
        ({"step": "many"}, "many"),
        ({"class_names": "7"}, "'int' object"),
        ({"stored_shape": "null"}, "not iterable"),
        ({"packing": "7"}, "'int' object"),
    ],
)
def test_damaged_metadata_is_an_error(tmp_path: Path, change: dict[str, str], message: str) -> None:
    _, state = network()
    data = Synthetic(100, (28, 28, 1), 10, seed=0)
    metadata = {**checkpoint.build_metadata(run_spec((4,)), state, data), "step": "3", **change}
    path = tmp_path / "bad.safetensors"
    safetensors.write(path, {}, metadata)
    with pytest.raises(CheckpointError) as refused:
        checkpoint.read(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_weights_of_other_programs_have_no_metadata(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    library.save_file({"fc.weight": np.zeros((2, 3), np.float32)}, path, {"format": "pt"})
    found = checkpoint.read(path)
    assert (list(found.weights), found.optimizer_state, found.info.run) == (["fc.weight"], {}, None)
