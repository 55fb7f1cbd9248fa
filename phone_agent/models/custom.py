"""A network of the user's own: a Python file with a function that builds it, `path/to/file.py:build`.

It is staged on every phone as it is, and read there again; so it may import only what every phone has.
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
MODULE = "own_model"
LARGEST_FILE = 1_000_000
ON_EVERY_PHONE = frozenset({"numpy", "phone_agent"}) | sys.stdlib_module_names


class CustomModelError(GraphError):
    """What is wrong with the file, and in which line."""


def is_custom(name: str) -> bool:
    return name.rpartition(":")[0].endswith(SUFFIX) or name.endswith(SUFFIX)


def split_name(name: str) -> tuple[Path, str]:
    """Of 'path/to/file.py:build': the file and the function."""
    path, _, function = name.rpartition(":")
    if not path.endswith(SUFFIX) or not function.isidentifier():
        raise CustomModelError(f"'{name}' names no function: write FILE.py:FUNCTION, such as {name.rstrip(':')}:build")
    return Path(path), function


@dataclass(frozen=True)
class CustomModel:
    """`defaults` are those of the function's arguments: what it is made for."""

    build: Callable[[int, Shape], Graph]
    defaults: dict[str, Any]


def load(name: str) -> CustomModel:
    """What builds the network answers with a graph, or with an error that names the line."""
    path, function = split_name(name)
    built_by = getattr(_module(path), function, None)
    if not inspect.isfunction(built_by):
        raise CustomModelError(f"{path} has no function {function}(classes, shape)")
    where = f"{path}:{built_by.__code__.co_firstlineno}: {function}"

    def build(classes: int, shape: Shape) -> Graph:
        return _checked(_blamed(path, lambda: built_by(classes, shape)), classes, shape, where)

    parameters = inspect.signature(built_by).parameters.values()
    return CustomModel(build, {each.name: each.default for each in parameters if each.default is not each.empty})


def _module(path: Path) -> ModuleType:
    source = _source(path)
    _check_imports(path, source)
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module  # dataclasses look themselves up there
    _blamed(path, lambda: exec(compile(source, str(path), "exec"), module.__dict__))  # noqa: S102 - the user's own
    return module


def _source(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise CustomModelError(f"{path} has more than {LARGEST_FILE} bytes: this is no description of a network")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CustomModelError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CustomModelError(f"{path} is not text in UTF-8") from None


def _check_imports(path: Path, source: str) -> None:
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise CustomModelError(f"{path}:{line or 1}: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise CustomModelError(f"{path}: it is nested too deeply to be read") from None
    for node in ast.walk(tree):
        for module in _imported(node):
            if module.partition(".")[0] not in ON_EVERY_PHONE:
                told = f"it imports {module or 'a file beside it'}"
                has = "phones have only Python's own modules, numpy and phone_agent, and get this one file"
                raise CustomModelError(f"{path}:{getattr(node, 'lineno', 1)}: {told}; {has}")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "") if not node.level else ""]
    return []


def _blamed(path: Path, work: Callable[[], Any]) -> Any:
    """Whatever goes wrong is told with the last line of the file that took part in it."""
    try:
        return work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own may raise anything
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", 1)
        what = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}".rstrip(": ")
        raise CustomModelError(f"{path}:{line}: {what}") from None


def _checked(graph: Any, classes: int, shape: Shape, where: str) -> Graph:
    if not isinstance(graph, Graph):
        raise CustomModelError(f"{where} returned {type(graph).__name__}, not a Graph: end it with return net.build()")
    if not graph.nodes or graph.shape != tuple(shape):
        raise CustomModelError(
            f"{where} built a network for {graph.shape}; asked for was {shape}: use its argument shape"
        )
    if graph.classes != classes:
        raise CustomModelError(
            f"{where} built {graph.classes} classes; asked for were {classes}: use its argument classes"
        )
    if not graph.parameter_count:
        raise CustomModelError(f"{where} built a network without anything to learn: add a Conv or a Dense layer")
    if graph.unused_layers:
        told = f"nothing reads the output of {', '.join(graph.unused_layers)}"
        raise CustomModelError(f"{where} built a network in which {told}: leave it out, or feed it to another layer")
    return graph
