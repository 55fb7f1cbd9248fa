"""`clusterctl models`, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone_agent import models
from phone_agent.backends.opencl.memory_estimate import ADRENO_640, options_for_backend
from phone_agent.nn.graph import GraphError
from phone_agent.nn.plan.memory_plan import estimate_memory
from phone_agent.nn.plan.ops import FLOAT
from phone_agent.nn.plan.options import Options
from phone_agent.nn.summary import block_name, blocks, forward_flops, training_flops

CLUSTERCTL = (sys.executable, "-m", "orchestrator.cli.app", "models")


def clusterctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLUSTERCTL, *arguments], capture_output=True, text=True, check=False)


def document(*arguments: str) -> Any:
    done = clusterctl(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_list_has_every_model() -> None:
    listed = {each["name"]: each for each in document("list")}
    assert tuple(listed) == models.NAMES
    resnet = listed["resnet50"]
    assert (resnet["parameters"], resnet["chunks"], resnet["shape"]) == (25_557_032, 161, [224, 224, 3])
    assert resnet["forward_flops"] / 1e9 == pytest.approx(8.18, abs=0.01)  # 4.09 GMAC is what everyone quotes
    for name in models.NAMES:
        assert name in clusterctl("list").stdout


def test_show_prints_layers_size_compute_and_memory() -> None:
    shown = clusterctl("show", "resnet20", "--batch", "8", "--memory", "200MB")
    assert shown.returncode == 0, shown.stderr
    for words in ("layer1.0", "272,474 in 65 tensors", "batch 8", "in 200.0 MB", "largest batch: "):
        assert words in shown.stdout
    assert "batch 8 fits without recomputation" in " ".join(shown.stdout.split())
    assert "layer1.1 to 2" in " ".join(shown.stdout.split()) or "layer1.0 to 2" in " ".join(shown.stdout.split())


def test_show_as_json() -> None:
    shown = document("show", "resnet20", "--batch", "8", "--classes", "7", "--image", "40", "--width", "2")
    assert (shown["classes"], shown["shape"]) == (7, [40, 40, 3])
    assert shown["memory"]["batch"] == 8
    assert 0 < shown["largest_batch"] <= shown["largest_batch_recomputing"]
    assert [layer["name"] for layer in shown["layers"][:3]] == ["conv1", "bn1", "relu"]
    assert shown["layers"][0]["inputs"] == ["image"]
    assert sum(layer["parameters"] for layer in shown["layers"]) == shown["parameters"]
    assert sum(layer["flops"] for layer in shown["layers"]) == shown["forward_flops"]


def test_show_prints_whether_the_batch_fits_and_what_is_recomputed() -> None:
    shown = document("show", "resnet20", "--batch", "64", "--memory", "120MB")
    assert shown["fits"]
    assert shown["memory"]["total"] > shown["memory_in_budget"]["total"]
    assert shown["memory_in_budget"]["total"] <= 120_000_000
    twice = len(shown["memory_in_budget"]["recomputed"])
    message = " ".join(clusterctl("show", "resnet20", "--batch", "64", "--memory", "120MB").stdout.split())
    assert f"batch 64 fits by recomputing {twice} layers" in message
    shown = document("show", "resnet20", "--batch", "4096", "--memory", "120MB")
    assert (shown["fits"], shown["memory_in_budget"]) == (False, None)
    assert "batch 4096 does not fit" in clusterctl("show", "resnet20", "--batch", "4096", "--memory", "120MB").stdout


def test_a_larger_batch_needs_more_memory() -> None:
    small, large = (document("show", "lenet", "--batch", batch)["memory"]["total"] for batch in ("1", "512"))
    assert small < large


def test_memory_depends_on_the_backend() -> None:
    shown = document("show", "lenet", "--batch", "8", "--threads", "4", "--backend", "hybrid")
    graph, options = models.build("lenet"), Options(threads=4)
    cpu, gpu = (
        estimate_memory(graph, 8, options_for_backend(name, options, graph.shape, ADRENO_640))
        for name in ("cpu", "opencl")
    )
    assert cpu.workspace != gpu.workspace
    copied = 8 * FLOAT * prod(graph.shape)
    assert shown["memory"]["workspace"] == cpu.workspace + gpu.workspace + copied
    assert shown["memory"]["momenta"] == 3 * cpu.momenta
    refused = clusterctl("show", "lenet", "--backend", "abacus")
    assert (refused.returncode, "'abacus' is not one of" in " ".join(refused.stderr.split())) == (2, True)


def test_memory_too_small_for_one_image_is_reported() -> None:
    shown = clusterctl("show", "resnet20", "--memory", "1MB")
    assert shown.returncode == 0
    assert "not even one image" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "resnet05"), "unknown model 'resnet05'; did you mean resnet50?"),
        (("show", "alexnet", "--image", "20"), "alexnet does not support 20x20x3 images: layer features."),
        (("show", "lenet", "--image", "20xx"), "invalid image size '20xx'"),
        (("show", "lenet", "--image", "0"), "invalid image size '0'"),
        (("show", "lenet", "--memory", "much"), "'much' is not an amount of memory"),
        (("show", "lenet", "--width", "-1"), "width -1"),
        (("show", "lenet", "--classes", "0"), "0 classes"),
        (("show", "lenet", "--classes", "4294967297"), "4294967297 classes; 1 to"),
        (("show", "lenet", "--image", "90000"), "values per image"),
        (("show", "lenet", "--batch", "1000000"), "a batch of 1000000 needs"),
        (("show", "lenet", "--batch", "0"), "--batch"),
        (("show", "lenet", "--threads", "1000"), "--threads"),
        (("show",), "Missing argument"),
    ],
)
def test_bad_input_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = clusterctl(*arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given_image", "shape"), [(None, None), ("64", (64, 64, 3)), ("64x48", (64, 48, 3)), ("64x48x1", (64, 48, 1))]
)
def test_image_sizes_are_parsed(given_image: str | None, shape: tuple[int, ...] | None) -> None:
    assert models.image_shape("resnet50", given_image) == shape


@given(st.text(max_size=12))
def test_any_image_text_is_parsed_or_rejected(text: str) -> None:
    try:
        shape = models.image_shape("resnet50", text)
    except GraphError as error:
        assert "invalid image size" in str(error)  # noqa: PT017 - nothing raised is as good
    else:
        assert shape is not None
        assert len(shape) == 3
        assert min(shape) > 0


@pytest.mark.parametrize("name", models.NAMES)
def test_blocks_cover_the_whole_model(name: str) -> None:
    graph = models.build(name)
    found = blocks(graph)
    assert sum(block.parameters * block.times for block in found) == graph.parameter_count
    assert sum(block.flops * block.times for block in found) == forward_flops(graph)
    assert 2 * forward_flops(graph) < training_flops(graph) < 3 * forward_flops(graph)
    assert len(found) < 30


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("layer1.0.downsample.1", "layer1.0"),
        ("features.3.squeeze", "features.3"),
        ("Mixed_5b.branch1x1.conv", "Mixed_5b"),
        ("fc", "fc"),
    ],
)
def test_blocks_are_named_by_the_common_prefix_of_their_layers(name: str, block: str) -> None:
    assert block_name(name) == block
