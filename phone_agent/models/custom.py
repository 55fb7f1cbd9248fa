"""Custom models: a Python file with a function that builds the network, `path/to/file.py:build`.

The file is copied to every phone and executed there, so it may import only what every phone has.
"""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from phone_agent.contract.errors import AgentError
from phone_agent.nn.graph import Graph, GraphError, Shape

SUFFIX = ".py"
MODULE = "custom_model"
MAX_FILE_BYTES = 1_000_000
ON_EVERY_PHONE = frozenset({"numpy", "phone_agent"}) | sys.stdlib_module_names


class CustomModelError(GraphError):
    """An error in the file. The message names the file and the line."""


def is_custom(name: str) -> bool:
    return name.rpartition(":")[0].endswith(SUFFIX) or name.endswith(SUFFIX)


def split_name(name: str) -> tuple[Path, str]:
    """Split 'path/to/file.py:build' into file and function."""
    path, _, function = name.rpartition(":")
    if not path.endswith(SUFFIX) or not function.isidentifier():
        raise CustomModelError(
            f"'{name}' does not name a function: use FILE.py:FUNCTION, such as {name.rstrip(':')}:build"
        )
    return Path(path), function


@dataclass(frozen=True)
class CustomModel:
    """`defaults`: the default arguments of the build function."""

    build: Callable[[int, Shape], Graph]
    defaults: dict[str, Any]


def load(name: str) -> CustomModel:
    """Load a custom model. Errors of its build function are reported with file and line."""
    path, function = split_name(name)
    function_object = getattr(_module(path), function, None)
    if not inspect.isfunction(function_object):
        raise CustomModelError(f"{path} has no function {function}(classes, shape)")
    where = f"{path}:{function_object.__code__.co_firstlineno}: {function}"

    def build(classes: int, shape: Shape) -> Graph:
        return _check_graph(_with_location(path, lambda: function_object(classes, shape)), classes, shape, where)

    parameters = inspect.signature(function_object).parameters.values()
    return CustomModel(build, {each.name: each.default for each in parameters if each.default is not each.empty})


def _module(path: Path) -> ModuleType:
    source = _source(path)
    _check_imports(path, source)
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module  # dataclasses look up their module there
    _with_location(path, lambda: exec(compile(source, str(path), "exec"), module.__dict__))  # noqa: S102 - the user's own code
    return module


def _source(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CustomModelError(f"{path} is larger than {MAX_FILE_BYTES} bytes: not a model file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CustomModelError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CustomModelError(f"{path} is not UTF-8 text") from None


def _check_imports(path: Path, source: str) -> None:
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise CustomModelError(f"{path}:{line or 1}: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise CustomModelError(f"{path}: nested too deeply to parse") from None
    for node in ast.walk(tree):
        for module in _imported(node):
            if module.partition(".")[0] not in ON_EVERY_PHONE:
                what = f"imports {module or 'a local file'}"
                why = "phones have only the standard library, numpy and phone_agent, and receive only this file"
                raise CustomModelError(f"{path}:{getattr(node, 'lineno', 1)}: {what}; {why}")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "") if not node.level else ""]
    return []


def _with_location(path: Path, work: Callable[[], Any]) -> Any:
    """Run `work`, and report any error with the innermost line of the file in its traceback."""
    try:
        return work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", 1)
        what = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}".rstrip(": ")
        raise CustomModelError(f"{path}:{line}: {what}") from None


def _check_graph(graph: Any, classes: int, shape: Shape, where: str) -> Graph:
    if not isinstance(graph, Graph):
        raise CustomModelError(f"{where} returned {type(graph).__name__}, not a Graph: return net.build() at its end")
    if not graph.nodes or graph.shape != tuple(shape):
        raise CustomModelError(
            f"{where} built a network for shape {graph.shape} instead of {shape}: use the argument `shape`"
        )
    if graph.classes != classes:
        raise CustomModelError(
            f"{where} built {graph.classes} classes instead of {classes}: use the argument `classes`"
        )
    if not graph.parameter_count:
        raise CustomModelError(f"{where} built a network without parameters: add a Conv or Dense layer")
    if graph.unused_layers:
        unused = ", ".join(graph.unused_layers)
        raise CustomModelError(f"{where}: the output of {unused} is not used: remove it, or use it in another layer")
    return graph
