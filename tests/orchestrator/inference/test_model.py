"""From a file of weights to a network on this computer, and on to a file for others."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors import numpy as library
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.errors import UsageError
from orchestrator.inference.model import IMAGENET_MEAN, Preprocessing, open_trained
from orchestrator.launch.initial_state import make_initial_state, read_weights_file
from phone_agent import models
from phone_agent.contract import safetensors
from phone_agent.contract.schema import DataSpec, RunSpec
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.weights import to_state_dict
from phone_agent.train import checkpoint
from phone_agent.train.initial_state import freeze
from tests.orchestrator.launch.samples import phones, plan
from tests.phone_agent.phones import run_spec

CIFAR = DataSpec("cifar10", 400, (32, 32, 3), 10)
OWN = """\
from phone_agent.nn.graph import Dense, GraphBuilder


def head(classes=4, shape=(6, 6, 3)):
    net = GraphBuilder(shape)
    net.add("fc", Dense(classes))
    return net.build()
"""


def network(name: str = "resnet20", classes: int = 10) -> tuple[Graph, State]:
    graph = models.build(name, classes)
    return graph, State(graph, seed=4)


def kept(directory: Path, spec: RunSpec, graph: Graph, state: State) -> Path:
    """A checkpoint as rank 0 writes it."""
    data = Synthetic(10, spec.data.shape, spec.data.classes, seed=0)
    saving = checkpoint.CheckpointWriter(
        directory, graph, checkpoint.build_metadata(spec, state, data), lambda *_, **__: None
    )
    saving.save(5, state, {"momenta": state.momenta})
    saving.close()
    return directory / "checkpoint-00000005.safetensors"


def refused(*arguments: Any) -> UsageError:
    with pytest.raises(UsageError) as error:
        open_trained(*arguments)
    return error.value


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    graph, state = network()
    trained = open_trained(kept(tmp_path, replace(run_spec((4,)), model="resnet20", data=CIFAR), graph, state))
    assert (trained.about.model, trained.graph.classes, trained.stored_shape) == ("resnet20", 10, (32, 32, 3))
    assert (trained.about.step, trained.about.mean) == (5, (0.5, 0.5, 0.5))
    np.testing.assert_array_equal(trained.state.values, state.values)


def test_weights_from_elsewhere_need_a_network_and_tell_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    library.save_file(to_state_dict(*network(classes=7)), path, {"format": "pt"})
    assert "does not name its model" in refused(path).message
    trained = open_trained(path, "resnet20")
    assert (trained.graph.classes, trained.about.mean) == (7, IMAGENET_MEAN)
    assert trained.names == tuple("0123456")
    error = refused(path, "mobilenet_reduced")
    assert error.message.startswith(f"{path}, read as mobilenet_reduced: the weights do not match the network: ")
    assert error.remedy == "choose the model with --model"


def test_a_network_of_ones_own_is_named_not_found(tmp_path: Path) -> None:
    """A file beside a checkpoint from somebody else is not run for being there."""
    (tmp_path / "mine.py").write_text(OWN)
    data = DataSpec("synthetic", 40, (6, 6, 3), 4)
    spec = replace(run_spec((4,)), model="head", model_file="mine.py", data=data)
    graph = models.build(f"{tmp_path}/mine.py:head")
    path = kept(tmp_path, spec, graph, State(graph, 1))
    assert refused(path).remedy == "--model path/to/mine.py:head"
    assert open_trained(path, f"{tmp_path}/mine.py:head").about.model == "mine.py:head"


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_a_directory_is_no_file_to_export_to(tmp_path: Path, kind: str) -> None:
    weights = tmp_path / "w.safetensors"
    library.save_file(to_state_dict(*network("lenet")), weights)
    flags = ["--model", "lenet", "--format", kind, "-o", str(tmp_path)]
    error = CliRunner().invoke(app, ["export", str(weights), *flags]).exception
    assert isinstance(error, UsageError)
    assert (error.message, error.remedy) == (
        f"{tmp_path} is a directory, not a file to write",
        f"-o {tmp_path}/lenet.{kind}",
    )
    assert list(tmp_path.iterdir()) == [weights]


@pytest.mark.parametrize("name", ["a.pth", "b.PT", "c.ckpt"])
def test_pickles_are_not_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    error = refused(tmp_path / name, "lenet")
    assert "can run arbitrary code" in error.message
    assert f"torch.load('{name}', weights_only=True)" in (error.remedy or "")


def test_numpys_archives_are_read_unless_they_hold_objects(tmp_path: Path) -> None:
    graph, state = network("lenet")
    arrays: dict[str, Any] = to_state_dict(graph, state)
    np.savez(tmp_path / "a.npz", **arrays)
    np.testing.assert_array_equal(open_trained(tmp_path / "a.npz", "lenet").state.values, state.values)
    np.savez(tmp_path / "b.npz", **{"fc.weight": np.array([{}], object)}, allow_pickle=True)
    assert "plain arrays" in refused(tmp_path / "b.npz", "lenet").message
    np.savez(tmp_path / "text.npz", **{**arrays, next(iter(arrays)): np.array(["a"])})
    assert "not numeric: " in refused(tmp_path / "text.npz", "lenet").message
    (tmp_path / "c.npz").write_bytes(b"PK nothing")
    assert "plain arrays" in refused(tmp_path / "c.npz", "lenet").message


def _compressed(path: Path) -> bytearray:
    np.savez_compressed(path, weight=np.arange(3000, dtype=np.float32))
    return bytearray(path.read_bytes())


def _damaged(path: Path) -> bytes:
    raw = _compressed(path)
    raw[100:130] = bytes(30)
    return bytes(raw)


def _encrypted(path: Path) -> bytes:
    """Encrypted, according to its flag; there is no password."""
    raw = _compressed(path)
    raw[raw.index(b"PK\1\2") + 8] |= 1
    raw[6] |= 1
    return bytes(raw)


def _empty(_: Path) -> bytes:
    return b""


def _unclosed(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("fc.weight.npy", b"\x93NUMPY\x01\x00\x05\x00((((\n")
    return path.read_bytes()


def _alone(path: Path) -> bytes:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    return path.with_suffix(".npy").read_bytes()


@pytest.mark.parametrize("broken", [_damaged, _encrypted, _empty, _unclosed, _alone])
def test_damaged_archives_of_numpy_are_told(tmp_path: Path, broken: Callable[[Path], bytes]) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(broken(path))
    error = refused(path, "lenet")
    assert error.message.startswith(f"{path} is not an .npz file of plain arrays: ")
    assert error.remedy == "write it with numpy.savez"


def test_images_are_prepared_by_their_middle() -> None:
    images = np.arange(2 * 5 * 6 * 2, dtype=np.uint8).reshape(2, 5, 6, 2)
    normal = Preprocessing((0.5, 0.25), (0.5, 2.0), (3, 4, 2)).normalize(images)
    np.testing.assert_allclose(normal, (images[:, 1:4, 1:5] / 255 - (0.5, 0.25)) / (0.5, 2.0), rtol=1e-5)
    with pytest.raises(UsageError, match="the model expects 8x4x2"):
        Preprocessing((0.5,) * 2, (1.0,) * 2, (8, 4, 2)).normalize(images)


def test_export_writes_both_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph, state = network("lenet")
    path = kept(tmp_path, replace(run_spec((4,)), model="lenet"), graph, state)
    done = CliRunner().invoke(app, ["export", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["file"] == "lenet.onnx"
    (tmp_path / "plain").touch()
    assert (tmp_path / "lenet.onnx").stat().st_mode == (tmp_path / "plain").stat().st_mode
    reported = {each.key: each.value for each in onnx.load(tmp_path / "lenet.onnx").metadata_props}
    assert (reported["model"], reported["step"], json.loads(reported["mean"])) == ("lenet", "5", [0.5])
    CliRunner().invoke(app, ["export", str(path), "--format", "safetensors", "-o", "w.safetensors"])
    exported = library.load_file(tmp_path / "w.safetensors")
    assert exported.keys() == to_state_dict(graph, state).keys()
    assert safetensors.read(tmp_path / "w.safetensors").metadata["format"] == "pt"
    again = open_trained(tmp_path / "w.safetensors")
    assert (again.about.model, again.about.mean, again.about.step) == ("lenet", (0.5,), 5)


def test_a_run_starts_from_weights_for_other_classes(tmp_path: Path) -> None:
    graph, _ = network()
    library.save_file(to_state_dict(*network(classes=7)), tmp_path / "seven.safetensors")
    start = make_initial_state("resnet20", graph, read_weights_file(tmp_path / "seven.safetensors"), seed=3)
    assert start.reinitialized == ("fc.weight", "fc.bias")
    assert start.weights is not None
    assert start.weights.keys() == to_state_dict(*network()).keys()
    with pytest.raises(UsageError, match=r"--weights .*seven.safetensors: the weights do not match"):
        make_initial_state("lenet", network("lenet")[0], read_weights_file(tmp_path / "seven.safetensors"), seed=3)


ANIMALS, THINGS = (tuple(f"{kind} {number}" for number in range(10)) for kind in ("animal", "thing"))


@pytest.mark.parametrize(
    ("known", "names", "asked", "reinitialized"),
    [
        (ANIMALS, ANIMALS, None, False),
        (ANIMALS, THINGS, None, True),
        (ANIMALS, ANIMALS[::-1], None, True),
        ((), THINGS, None, False),
        (ANIMALS, (), None, False),
        (ANIMALS, THINGS, False, False),
        (ANIMALS, ANIMALS, True, True),
        ((), THINGS, True, True),
    ],
)
def test_as_many_classes_may_be_others(
    tmp_path: Path, known: tuple[str, ...], names: tuple[str, ...], *, asked: bool | None, reinitialized: bool
) -> None:
    graph, state = network()
    about = checkpoint.CheckpointMetadata("resnet20", 10, graph.shape, graph.shape, (0.5,) * 3, (0.5,) * 3, known)
    path = tmp_path / "w.safetensors"
    safetensors.write(path, to_state_dict(graph, state), {"format": "pt", **about.metadata()} if known else {})
    start = make_initial_state("resnet20", graph, read_weights_file(path), seed=3, class_names=names, new_head=asked)
    assert start.reinitialized == (("fc.weight", "fc.bias") if reinitialized else ())
    assert start.weights is not None
    first = to_state_dict(graph, State(graph, 3) if reinitialized else state)["fc.weight"]
    np.testing.assert_array_equal(start.weights["fc.weight"], first)


def test_a_head_of_another_size_cannot_be_kept(tmp_path: Path) -> None:
    library.save_file(to_state_dict(*network(classes=7)), tmp_path / "seven.safetensors")
    with pytest.raises(UsageError, match=r"--keep-head: fc\.weight, fc\.bias of .*seven.* do not fit 10 classes"):
        make_initial_state(
            "resnet20", network()[0], read_weights_file(tmp_path / "seven.safetensors"), seed=3, new_head=False
        )


def test_a_head_that_starts_anew_is_not_frozen(tmp_path: Path) -> None:
    library.save_file(to_state_dict(*network(classes=7)), tmp_path / "seven.safetensors")
    given, (graph, _) = read_weights_file(tmp_path / "seven.safetensors"), network()
    assert make_initial_state("resnet20", freeze(graph, ("layer1", "*.bias")), given, seed=3).reinitialized
    with pytest.raises(UsageError, match=r"--freeze: fc\.weight, fc\.bias are initialized at random and would never"):
        make_initial_state("resnet20", freeze(graph, ("layer1", "fc")), given, seed=3)


def test_run_spec_names_network_and_initial_weights(tmp_path: Path) -> None:
    (tmp_path / "My Net.py").write_text(OWN)
    (tmp_path / "MyNet.py").write_text(OWN)
    data, model = DataSpec("synthetic", 400, (6, 6, 3), 4), f"{tmp_path}/MyNet.py:head"
    graph = models.build(model, data.classes, data.input_shape)
    library.save_file(to_state_dict(graph, State(graph, 1)), tmp_path / "w.safetensors")
    options = {"model": model, "weights": tmp_path / "w.safetensors", "freeze": ("fc.bias",)}
    spec = plan({**options, "eval_every": 3, "recovery.checkpoint_every": 4}, phones(2), data)
    assert (spec.model, spec.model_file, spec.weights, spec.freeze) == (
        "head",
        "MyNet.py",
        "weights.safetensors",
        ("fc.bias",),
    )
    assert (spec.eval_every, spec.recovery.checkpoint_every) == (3, 4)
    assert "-mynet-" in spec.run_id
    with pytest.raises(UsageError, match=r"--freeze: no trainable layer of .* matches 'layer9'"):
        plan({**options, "freeze": ("layer9",)}, phones(2), data)
    with pytest.raises(UsageError, match="not a portable file name"):
        plan({"model": f"{tmp_path}/My Net.py:head"}, phones(2), data)
