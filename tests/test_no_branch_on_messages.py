"""Behavior depends on error codes and typed fields, never on the wording of a message.

Reads the source as a syntax tree and finds expressions that look into a message: `"…" in error.message`,
`str(error).startswith(…)`, `re.search(…, remedy)`, `message == "…"`. Output of foreign programs may be searched, once,
where it is turned into a code: those functions are listed in BOUNDARIES.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*ROOT.glob("orchestrator/**/*.py"), *ROOT.glob("phone_agent/**/*.py")])

# Words in the names of variables and attributes that hold text for a person.
MESSAGE = re.compile(
    r"(^|_)(message|messages|reason|reasons|remedy|why|unfit|silent|headline|detail|advice|hint|complaint|complaints"
    r"|explanation|output|said|stderr|diagnosis|evidence|error|errors)$"
)
SEARCHES = frozenset({
    "startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "find", "rfind", "rsplit",
    "index", "rindex", "casefold",
})  # fmt: skip
PATTERNS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "split"})

# Where foreign output becomes a code: file -> functions.
BOUNDARIES: dict[str, set[str]] = {
    "orchestrator/bootstrap/steps/apps.py": {"_install_error"},  # error names of Android's package manager
    "orchestrator/fleet/connect.py": {"_was_disconnected", "_auth_timed_out"},  # paramiko has no classes for these
    "orchestrator/fleet/result.py": {"exit_error_code"},  # strerror(ENOSPC), printed by any program
    "orchestrator/health/doctor_facts.py": {"symptoms"},  # linker, ssh, Open MPI
    "orchestrator/lab/init.py": {"read"},  # the line a program prints when it is ready
}


def looks_into_message(tree: ast.AST) -> Iterator[ast.AST]:
    """The expressions that do, in the order of the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(_is_message, _searched(node))):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            if called.attr in SEARCHES and _is_message(called.value):
                yield node
            if called.attr == "split" and node.args and _is_message(called.value):
                yield node
            if called.attr in PATTERNS and any(map(_is_message, node.args)):
                yield node


def _searched(node: ast.Compare) -> Iterator[ast.expr]:
    """Operands in which text is searched, or which are compared with text."""
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.In | ast.NotIn) and not _is_keyed(left, right):
            yield right
        elif isinstance(operator, ast.Eq | ast.NotEq):
            if _is_text(right):
                yield left
            if _is_text(left):
                yield right
        left = right


def _is_keyed(key: ast.expr, container: ast.expr) -> bool:
    """`"error" in said`: a key of a document. A message is searched for words, a document for an identifier."""
    plain = isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()
    return plain and isinstance(container, ast.Name)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and bool(node.value) and type(node.value) is str
    )


def _is_message(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return MESSAGE.search(node.id) is not None
    if isinstance(node, ast.Attribute):
        return MESSAGE.search(node.attr) is not None
    if isinstance(node, ast.Subscript):
        return _names_message([node.slice]) or _is_message(node.value)
    if isinstance(node, ast.Call):
        return _is_message_call(node)
    parts = {ast.BoolOp: "values", ast.BinOp: "left right"}.get(type(node), "")
    return any(_is_message(each) for part in parts.split() for each in _as_list(getattr(node, part)))


def _is_message_call(node: ast.Call) -> bool:
    """`str(error)`, `fields.get("message")`, `message.strip()`."""
    if isinstance(node.func, ast.Name):
        return node.func.id in {"str", "repr", "one_line"} and any(map(_is_message, node.args))
    if isinstance(node.func, ast.Attribute):
        looked_up = node.func.attr in {"get", "text"} and _names_message(node.args)
        return looked_up or _is_message(node.func.value)
    return False


def _as_list(part: ast.expr | list[ast.expr]) -> list[ast.expr]:
    return part if isinstance(part, list) else [part]


def _names_message(nodes: list[ast.expr]) -> bool:
    """`fields["message"]`, `fields.get("message")`."""
    return any(isinstance(node, ast.Constant) and MESSAGE.search(str(node.value)) for node in nodes)


def enclosing_function(tree: ast.AST, node: ast.AST) -> str:
    line = getattr(node, "lineno", 0)
    around = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.lineno <= line <= (each.end_lineno or 0)
    ]
    return max(around, key=lambda each: each.lineno).name if around else ""


def offences(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in looks_into_message(tree):
        if enclosing_function(tree, node) not in BOUNDARIES.get(name, set()):
            yield f"{name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def test_no_behavior_depends_on_the_wording_of_a_message() -> None:
    found = [each for path in SOURCES for each in offences(path)]
    assert not found, "branch on an error code instead:\n" + "\n".join(found)


def test_every_boundary_still_exists() -> None:
    for name, functions in BOUNDARIES.items():
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        there = {enclosing_function(tree, node) for node in looks_into_message(tree)}
        assert functions <= there, name


@pytest.mark.parametrize(
    "code",
    [
        'if "signal 9" in found.message: pass',
        'if "signal 9" not in newest.error: pass',
        "if LEASED in sight.silent: pass",
        'x = str(error).partition(": ")[0]',
        'if (outcome.remedy or "").startswith("clusterctl provision"): pass',
        'if str(event.fields.get("message", "")).startswith("Exception: MPI_"): pass',
        'if event.text("message").endswith("gone"): pass',
        "ok = re.search(pattern, raised.message)",
        "ok = PATTERN.search(str(error))",
        'if raised.message == "no such run": pass',
        'if "no answer" in measured.why: pass',
        "if told['reason'] == 'hot and slow': pass",
        'words = re.split("[;,:]", why)',
        'if "Permission denied" in done.stdout + done.stderr: pass',
    ],
)
def test_it_finds(code: str) -> None:
    assert list(looks_into_message(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "if outcome.code is ErrorCode.LEASE_HELD: pass",
        "if error.errno in NO_ROUTE: pass",
        'if "error" in said: pass',
        "if isinstance(error, OSError): pass",
        'parts = line.split(",")',
        "if diagnosis.cause is Cause.RANK_KILLED: pass",
        "if not outcome.error: pass",
    ],
)
def test_it_leaves_alone(code: str) -> None:
    assert not list(looks_into_message(ast.parse(code)))
