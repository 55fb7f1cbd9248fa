"""A trained network on this computer."""

from __future__ import annotations

from pathlib import Path

from phone_agent.backends import get_backend
from phone_agent.contract.dataset_manifest import DatasetManifest
from phone_agent.data.staged import Staged
from phone_agent.nn.executable import Executable
from phone_agent.nn.graph import Graph
from phone_agent.nn.packing import State
from phone_agent.nn.plan.options import Options
from phone_agent.train import evaluate
from phone_agent.train.evaluate import Normalizer


def compile_graph(graph: Graph, state: State, batch: int, threads: int) -> Executable:
    """Compiles for the processor of this computer."""
    return get_backend("cpu").compile(graph, state, batch, Options(threads=threads))


def evaluate_test_set(
    executable: Executable, directory: Path, manifest: DatasetManifest, preparation: Normalizer
) -> dict[str, float]:
    """Mean loss, top1 and top5 over all held-out samples of the dataset in that directory."""
    test_set = Staged(directory, manifest, manifest.test)
    row = evaluate.evaluate_samples(executable, test_set, range(manifest.test_samples), preparation)
    return evaluate.mean_metrics(row)
