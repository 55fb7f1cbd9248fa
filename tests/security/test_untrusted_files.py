"""Datasets, checkpoints, run descriptions, package indexes: damaged or hostile, they are refused with a word.

Nothing else may happen: no other exception, nothing written, no memory beyond what the file itself has.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.data.sources import idx, pickled
from orchestrator.data.sources.contents import decompressed
from orchestrator.data.sources.source import SourceError
from orchestrator.errors import ClusterctlError, InventoryError
from orchestrator.inventory import load
from orchestrator.provision.termux.index import parse_packages
from phone_agent.contract import safetensors
from phone_agent.contract.dataset_manifest import parse_manifest
from phone_agent.contract.errors import AgentError
from phone_agent.contract.schema import LaunchSpec, RunSpec, SchemaError
from phone_agent.contract.shards import Shard, open_shard, write_shard
from phone_agent.data.synthetic import Synthetic
from phone_agent.nn.packing import State
from phone_agent.train import checkpoint
from tests.orchestrator.data.samples import pickled as pickle_of_python_2
from tests.orchestrator.launch.idx import write_idx
from tests.phone_agent.backends.test_cpu_backend import _small
from tests.phone_agent.phones import run_spec
from tests.security.bombs import BOMBS
from tests.security.fuzz import fuzzed, tried
from tests.security.mutations import mutated, restructured

MAX_FILE_BYTES = 48 << 20  # that reading a file of kilobytes may take


@dataclass(frozen=True)
class Format:
    """A reader, a good file for it, and the errors it may raise."""

    name: str
    read: Callable[[Path], object]
    good: bytes
    refusals: tuple[type[Exception], ...]


def _written(write: Callable[[Path], object], name: str = "file") -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _checkpoint(path: Path) -> None:
    graph = _small()
    state = State(graph, 1)
    data = Synthetic(100, (28, 28, 1), 10, seed=0)
    made = checkpoint.build_metadata(run_spec((4,)), state, data)
    safetensors.write(path, {"conv.weight": np.zeros((3, 3), np.float32)}, {**made, "step": "7"})


def _shard(path: Path) -> None:
    write_shard(path, np.zeros((5, 4, 4, 1), np.uint8), np.arange(5))


MANIFEST = {
    "version": 1, "name": "tiny", "format": "idx", "shape": [4, 4, 1], "class_names": ["a", "b"], "mean": [0.5],
    "std": [0.25], "test": [],
    "train": [{"name": "train-00000.shard", "samples": 5, "bytes": 100, "sha256": "0" * 64}],
}  # fmt: skip
PACKAGES = b"""Package: bash
Version: 5.3.0-1
Architecture: aarch64
Depends: readline (>= 8.0), libandroid-support | libc
Filename: pool/main/b/bash/bash_5.3.0-1_aarch64.deb
Size: 1000
Installed-Size: 2
SHA256: 0000000000000000000000000000000000000000000000000000000000000000

"""
INVENTORY = b"""cluster: rack
network: {subnet: 10.77.0.0/16, host: 10.77.0.1}
switches:
  sw1:
    ports: 8
    phones:
      - {ports: 1-4, name: "p1-{port:02}", address: "10.77.1.{port}"}
"""


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


FORMATS = [
    Format(
        "safetensors",
        safetensors.read,
        _written(lambda path: safetensors.write(path, {"w": np.ones((2, 3), np.float32), "b": np.ones(4, np.int8)})),
        (AgentError,),
    ),
    Format("checkpoint", checkpoint.read, _written(_checkpoint), (AgentError,)),
    Format("shard", lambda path: _all_of(open_shard(path)), _written(_shard), (AgentError,)),
    Format("manifest", lambda path: parse_manifest(_json(path)), json.dumps(MANIFEST).encode(), (AgentError,)),
    Format("run.json", lambda path: RunSpec.from_json(_text(path)), run_spec((4,)).to_json().encode(), (SchemaError,)),
    Format(
        "launch.json",
        lambda path: LaunchSpec.from_json(_text(path)),
        LaunchSpec("run", ("mpirun",), {"A": "1"}).to_json().encode(),
        (SchemaError,),
    ),
    Format("pickle", lambda path: pickled.read(path.read_bytes()), pickle_of_python_2({b"data": [1, b"x"]}, 2),
           (pickled.UnsupportedPickleError,)),
    Format("packages", lambda path: parse_packages(_text(path)), PACKAGES * 2, (ClusterctlError,)),
    Format("inventory", load, INVENTORY, (InventoryError,)),
]  # fmt: skip


def _json(path: Path) -> object:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError):
        return None


def _all_of(shard: Shard) -> object:
    images, labels = np.empty((len(shard), *shard.header.shape), np.uint8), np.empty(len(shard), np.int64)
    return shard.read(np.arange(len(shard)), images, labels)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_the_good_one_is_read(kind: Format, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(kind.good)
    kind.read(tmp_path / "file")


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
@given(data=st.data())
@fuzzed(70)
def test_a_damaged_one_is_refused_or_read(
    kind: Format, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed-{kind.name}"
    path.write_bytes(data.draw(mutated(kind.good)))
    tried(kind.name)
    with contextlib.suppress(*kind.refusals):
        kind.read(path)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind.good.startswith(b"{")], ids=lambda kind: kind.name)
@given(data=st.data())
@fuzzed(80)
def test_documents_of_another_structure_are_refused_or_read(
    kind: Format, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"restructured-{kind.name}"
    path.write_bytes(data.draw(restructured(kind.good)))
    tried(kind.name)
    with contextlib.suppress(*kind.refusals):
        kind.read(path)


@example(raw=json.dumps({**MANIFEST, "mean": [10**400]}).encode())
@given(raw=restructured(json.dumps(MANIFEST).encode()))
@fuzzed(100)
def test_a_dataset_that_is_believed_makes_sense(raw: bytes) -> None:
    tried("manifest")
    with contextlib.suppress(AgentError):
        made = parse_manifest(json.loads(raw))
        assert all(file.name == Path(file.name).name for file in made.files)
        assert all(isinstance(side, int) and side > 0 for side in made.shape)
        assert np.isfinite(np.asarray([*made.mean, *made.std], np.float64)).all()


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
@given(noise=st.binary(max_size=400))
@fuzzed(30)
def test_noise_is_refused_or_read(kind: Format, tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"noise-{kind.name}"
    path.write_bytes(noise)
    tried(kind.name)
    with contextlib.suppress(*kind.refusals):
        kind.read(path)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_a_file_that_claims_to_be_huge_costs_nothing(kind: Format, tmp_path: Path) -> None:
    """Every number in it as large as it goes, one after the other."""
    path = tmp_path / "file"
    tracemalloc.start()
    try:
        for place in range(min(len(kind.good), 160)):
            path.write_bytes(kind.good[:place] + b"\xff\xff\xff\x7f" + kind.good[place + 4 :])
            tried(kind.name)
            with contextlib.suppress(*kind.refusals):
                kind.read(path)
        assert tracemalloc.get_traced_memory()[1] < MAX_FILE_BYTES
    finally:
        tracemalloc.stop()


@given(data=st.data())
@fuzzed(40)
def test_idx_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "idx"
    shutil.rmtree(folder, ignore_errors=True)
    write_idx(folder, 4, 2, side=5)
    chosen = data.draw(st.sampled_from(sorted(folder.iterdir())))
    chosen.write_bytes(data.draw(mutated(chosen.read_bytes()[:200])))
    tried("idx")
    with contextlib.suppress(SourceError, ClusterctlError):
        idx.recognize(folder)


def test_no_images_of_endless_size_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "idx"
    write_idx(folder, 4, 2, side=5)
    images = folder / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:4] + (2).to_bytes(4) + b"\xff" * 8 + b"\0" * 50)
    with pytest.raises(SourceError, match="too few for"):
        idx.recognize(folder)


@given(st.binary(max_size=200))
@fuzzed(40)
def test_what_is_no_gzip_is_refused(raw: bytes) -> None:
    tried("gzip")
    with contextlib.suppress(SourceError, ClusterctlError):
        decompressed(b"\x1f\x8b" + raw, "a file")


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_does_not_fill_the_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / BOMBS[kind].file
    BOMBS[kind].write(path)
    command = [sys.executable, "-m", "tests.security.bombs", kind, str(path)]
    error, grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    tried("bombs")
    assert error in {"UsageError", "SourceError", "ValueError", "UnsupportedPickleError"}
    assert int(grown) < 160 << 20
