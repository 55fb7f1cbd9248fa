"""Custom models: what a file may contain, and how errors are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from phone_agent import models
from phone_agent.models.custom import CustomModelError
from phone_agent.models.overview import overview
from phone_agent.nn.graph import GraphError

GOOD = """\
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from phone_agent.nn.graph import Conv, Dense, Graph, GraphBuilder, Relu


@dataclass
class Width:
    filters: int = 4


def build(classes: int = 7, shape: tuple[int, int, int] = (12, 10, 2)) -> Graph:
    net = GraphBuilder(shape)
    net.add("conv", Conv(Width().filters, kernel=3))
    net.add("relu", Relu())
    net.add("fc", Dense(classes))
    return net.build()
"""

NO_PARAMETERS = """\
from phone_agent.nn.graph import GlobalAvgPool, GraphBuilder


def build(classes=3, shape=(8, 8, 3)):
    net = GraphBuilder(shape)
    net.add("pool", GlobalAvgPool())
    return net.build()
"""


def write(directory: Path, source: str) -> str:
    path = directory / "net.py"
    path.write_text(source)
    return f"{path}:build"


def test_a_custom_model_is_built_by_name(tmp_path: Path) -> None:
    name = write(tmp_path, GOOD)
    graph = models.build(name, classes=3, shape=(8, 8, 1))
    assert (graph.classes, graph.shape, graph.name) == (3, (8, 8, 1), name)
    assert [node.name for node in graph.nodes] == ["conv", "relu", "fc"]


def test_default_arguments_give_shape_and_classes(tmp_path: Path) -> None:
    expected = models.model(write(tmp_path, GOOD))
    assert (expected.shape, expected.classes) == ((12, 10, 2), 7)
    plain = models.model(write(tmp_path, GOOD.replace(" = 7", "").replace(" = (12, 10, 2)", "")))
    assert (plain.shape, plain.classes) == ((32, 32, 3), 10)


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        (("None", "None"), ((32, 32, 3), 10)),
        (("'many'", "28"), ((32, 32, 3), 10)),
        (("True", "(28, 28)"), ((32, 32, 3), 10)),
        (("7", "(28, None, 1)"), ((32, 32, 3), 7)),
        (("None", "[8, 9, 2]"), ((8, 9, 2), 10)),
    ],
)
def test_unusable_default_arguments_are_ignored(
    tmp_path: Path, defaults: tuple[str, str], expected: tuple[tuple[int, int, int], int]
) -> None:
    classes, shape = defaults
    found = models.model(write(tmp_path, GOOD.replace(" = 7", f" = {classes}").replace("(12, 10, 2)", shape)))
    assert (found.shape, found.classes) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import torch\n", "net.py:1: imports torch; phones have only"),
        ("def build(c, s):\n    from . import other\n", "net.py:2: imports a local file"),
        ("def build(c, s):\n    from other.parts import x\n", "net.py:2: imports other.parts"),
        ("x = 1\ndef build(:\n", "net.py:2: invalid syntax"),
        ("x = 1\ny = x / 0\n", "net.py:2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit('no')\n", "net.py:2: SystemExit: no"),
        ("def build(c, s):\n    raise SystemExit\n", "net.py:2: SystemExit"),
        ("def build(c, s):\n    return build(c, s)\n", "net.py:2: RecursionError"),
        ("def build(c, s):\n    raise MemoryError\n", "net.py:2: MemoryError"),
        ("x = " + "-" * 100_000 + "1\n", "nested too deeply"),
        ("def other(c, s): pass\n", "has no function build(classes, shape)"),
        ("build = 3\n", "has no function build(classes, shape)"),
        ("def build(c, s):\n    return 3\n", "net.py:1: build returned int, not a Graph"),
        ("def build(c):\n    return 3\n", "takes 1 positional argument but 2 were given"),
        (GOOD.replace("Dense(classes)", "Dense(9)"), "net.py:12: build built 9 classes instead of 7"),
        (GOOD.replace("GraphBuilder(shape)", "GraphBuilder((5, 5, 1))"), "built a network for shape (5, 5, 1)"),
        (GOOD.replace('"relu"', '"conv"'), "net.py:15: layer conv: the name is already used"),
        (GOOD.replace('"fc"', '"optimizer"'), "net.py:16: layer optimizer: in checkpoints this prefix marks"),
        (GOOD.replace("Relu())", "Relu(), -2)"), "net.py:15: layer relu (Relu): no layer at position -2: use"),
        (GOOD.replace("Relu())", "Relu(), -1)"), "the output of conv is not used: remove it"),
        (NO_PARAMETERS, "net.py:4: build built a network without parameters"),
        (GOOD.replace("kernel=3", "kernel=99"), "net.py:14: layer conv (Conv): the 99x99 window does not fit"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(CustomModelError) as error:
        models.build(write(tmp_path, source))
    assert message in str(error.value)


def test_a_name_without_a_function_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(GOOD)
    for name in (f"{tmp_path}/net.py", f"{tmp_path}/net.py:", f"{tmp_path}/net.py:a b"):
        with pytest.raises(CustomModelError, match=r"FILE\.py:FUNCTION"):
            models.build(name)
    with pytest.raises(CustomModelError, match="No such file"):
        models.build(f"{tmp_path}/none.py:build")
    with pytest.raises(GraphError, match="do not support width"):
        models.build(f"{tmp_path}/net.py:build", width=0.5)


def test_a_custom_model_has_an_overview(tmp_path: Path) -> None:
    name = write(tmp_path, GOOD)
    assert overview(name, models.build(name)).description == "custom model"
