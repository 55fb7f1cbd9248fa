"""Names, paths and words of people and files reach phones as what they are; a real shell says so."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import orchestrator
from orchestrator.cli.session import open_session
from orchestrator.errors import InventoryError, UsageError
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.shell import command_line
from orchestrator.inventory import Cluster, hostfile, load, select
from orchestrator.launch.mpirun import agent_argv, mpirun_argv, parameters
from orchestrator.paths import ClusterState
from orchestrator.provision.ssh_keys import login_public_key
from orchestrator.provision.steps import keys
from phone_agent.contract import layout
from tests.orchestrator.provision.samples import desired_state
from tests.security.fuzz import fuzzed, tried

NASTY = [
    "; touch owned",
    "$(touch owned)",
    "`touch owned`",
    "| touch owned",
    "&& touch owned",
    "\ntouch owned\n",
    "'; touch owned; '",
    '"; touch owned; "',
    "-oProxyCommand=touch owned",
    "--help",
    "../../etc/passwd",
    "~root",
    "*",
    "\x1b]0;owned\x07",
    "\\",
    "#",
    "a\tb",
    "\u202eabc",
]
WORDS = st.sampled_from(NASTY) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def in_bash(line: bytes, directory: Path) -> bytes:
    done = subprocess.run(["bash", "-c", line], cwd=directory, capture_output=True, check=True)
    assert list(directory.iterdir()) == [], "something was written"
    return done.stdout


@given(st.lists(WORDS, min_size=1, max_size=8), WORDS)
@fuzzed(150)
def test_arguments_and_variables_arrive_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], value: str
) -> None:
    tried("shell words", len(words) + 1)
    directory = _empty(tmp_path_factory)
    line = command_line(["bash", "-c", r'printf "%s\0" "$VALUE" "$@"', "bash", *words], {"VALUE": value})
    assert in_bash(line, directory) == "".join(f"{word}\0" for word in (value, *words)).encode()


def _empty(factory: pytest.TempPathFactory) -> Path:
    directory = factory.getbasetemp() / "nothing-here"
    directory.mkdir(exist_ok=True)
    return directory


@example("%")  # a job of bash's, even where it is quoted
@given(WORDS)
@fuzzed(60)
def test_a_program_is_its_name_whatever_that_is(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    tried("shell words")
    if name.startswith("%"):
        with pytest.raises(ValueError, match="not a program"):
            command_line([f"{name}-is-no-program"])
        return
    line = command_line([f"{name}-is-no-program", "argument"])
    done = subprocess.run(["bash", "-c", line], cwd=_empty(tmp_path_factory), capture_output=True, check=False)
    assert done.returncode in {126, 127}, "it ran something"
    assert list(_empty(tmp_path_factory).iterdir()) == []


GOOD: dict[str, Any] = {
    "cluster": "rack",
    "network": {"subnet": "10.77.0.0/16", "interface": "eth0", "rate": "1gbit", "host": "10.77.0.1"},
    "ssh": {"port": "8022", "user": "termux", "key": "id_ed25519"},
    "switches": {"sw1": {"ports": "8", "phones": [{"port": "1", "name": "p1", "address": "10.77.1.1"}]}},
}
PLACES: list[tuple[str | int, ...]] = [
    ("cluster",),
    *(("network", key) for key in ("subnet", "interface", "rate", "host")),
    *(("ssh", key) for key in ("port", "user", "key")),
    ("switches", "sw1", "ports"),
    *(
        ("switches", "sw1", "phones", 0, key)
        for key in ("port", "name", "address", "mac", "serial", "host_key", "user")
    ),
]


def with_value(place: tuple[str | int, ...], value: str) -> str:
    document = json.loads(json.dumps(GOOD))
    inside = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    return json.dumps(document)  # which is YAML


def test_the_inventory_without_mischief_is_one(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(json.dumps(GOOD))
    assert [phone.name for phone in load(tmp_path / "inventory.yaml")] == ["p1"]


@given(st.sampled_from(PLACES), WORDS, st.sampled_from(["", "p1", "sw1", "10.77.1.1", "eth0"]))
@fuzzed(200)
def test_an_inventory_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str | int, ...], word: str, before: str
) -> None:
    tried("inventories")
    path = tmp_path_factory.getbasetemp() / "inventory.yaml"
    path.write_text(with_value(place, before + word))
    try:
        cluster = load(path)
    except InventoryError as refused:
        told = refused.message
    else:
        _harmless(cluster, _empty(tmp_path_factory))
        return
    assert told.replace("\n", "").isprintable()


def _harmless(cluster: Cluster, directory: Path) -> None:
    """Everything that an inventory's texts get into, read by those who will read it."""
    phones = list(cluster)
    assert hostfile(phones).splitlines() == [f"{phone.address} slots=1" for phone in phones]
    argv = mpirun_argv(1, layout.run_dir("run"), parameters(cluster.subnet, "run"), agent_argv("train", "run"))
    told = in_bash(command_line(["printf", r"%s\0", *argv]), directory)
    assert told.decode().split("\0")[:-1] == list(argv)
    for phone in phones:
        for text in (phone.name, phone.switch, cluster.name, cluster.interface, phone.user):
            assert shlex.quote(text) == text, f"{text!r} would need quotes"
            assert not text.startswith("-")
            assert "/" not in text
    for line in keys.config_lines(_desired(cluster)):
        assert "\n" not in line
        assert line.isprintable()


def _desired(cluster: Cluster) -> Any:
    from dataclasses import replace

    return replace(desired_state(), cluster=cluster)


@example("/")
@given(WORDS)
@fuzzed(60)
def test_a_remedy_can_be_pasted_whatever_the_key_is_called(tmp_path_factory: pytest.TempPathFactory, word: str) -> None:
    """`ssh.key` names any file: the command that mends it must name it too, and do nothing else."""
    tried("remedies")
    folder = tmp_path_factory.getbasetemp() / "keys"
    folder.mkdir(exist_ok=True)
    path = folder / "inventory.yaml"
    path.write_text(with_value(("ssh", "key"), word))
    try:
        key = load(path).ssh_key
    except InventoryError:
        return
    assert key is not None
    with pytest.raises(UsageError) as told:
        login_public_key(load(path), ClusterState("rack"))
    assert shlex.split(str(told.value.remedy)) == ["ssh-keygen", "-y", "-f", str(key), ">", f"{key}.pub"]


@pytest.mark.parametrize("name", [name for name in NASTY if "/" not in name])
def test_a_key_that_cannot_be_read_is_named_so_that_it_can_be_pasted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("no key")
    with pytest.raises(UsageError) as told:
        load_private_key(tmp_path / name)
    assert shlex.split(str(told.value.remedy)) == ["ssh-keygen", "-y", "-f", str(tmp_path / name)]


@given(WORDS)
@fuzzed(100)
def test_a_selector_selects_or_is_refused(tmp_path_factory: pytest.TempPathFactory, word: str) -> None:
    tried("selectors")
    path = tmp_path_factory.getbasetemp() / "good.yaml"
    path.write_text(json.dumps(GOOD))
    cluster = load(path)
    with contextlib.suppress(UsageError):
        assert set(select(cluster, word, ClusterState("rack"))) <= set(cluster)


def test_an_inventory_that_is_no_text_at_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(os.urandom(3000))
    with pytest.raises(InventoryError):
        open_session(path)


SOURCES = sorted(Path(str(orchestrator.__file__)).parent.rglob("*.py"))


TEXT_OF = {"script": 0, "run_script_with_fallback": 1}  # which argument of what runs a script is its text


def test_scripts_for_phones_are_fixed_texts() -> None:
    """Data reaches a script as arguments: its text is a constant, or a file of provisioning/scripts."""
    found = [
        f"{path.name}:{call.lineno}"
        for path in SOURCES
        for function in _functions(path)
        if function.name not in TEXT_OF
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and (place := _text_of(call)) is not None
        and len(call.args) > place
        and not _is_fixed(call.args[place], function)
    ]
    assert found == []


def test_bash_is_given_fixed_texts() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path in SOURCES
        if "lab" not in path.parts
        for function in _functions(path)
        if function.name not in TEXT_OF
        for node in ast.walk(function)
        if isinstance(node, ast.List | ast.Tuple)
        for name, flag, text in zip(node.elts, node.elts[1:], node.elts[2:], strict=False)
        if _says(name, "bash", "sh") and _says(flag, "-c", "-lc") and not _is_fixed(text, function)
    ]
    assert found == []


def test_the_search_for_texts_would_find_one(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("def bad(connection, name):\n    connection.script(f'rm {name}')\n")
    (function,) = _functions(source)
    (call,) = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    assert _text_of(call) == 0
    assert not _is_fixed(call.args[0], function)


def _functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


def _text_of(call: ast.Call) -> int | None:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "script":
        return TEXT_OF["script"]
    return (
        TEXT_OF["run_script_with_fallback"]
        if isinstance(call.func, ast.Name) and call.func.id == "run_script_with_fallback"
        else None
    )


def _says(node: ast.expr, *words: str) -> bool:
    return isinstance(node, ast.Constant) and node.value in words


def _is_fixed(text: ast.expr, function: ast.FunctionDef) -> bool:
    """A literal, a constant by its name, a file that comes with us, or some of them one after the other."""
    if isinstance(text, ast.BinOp):
        return _is_fixed(text.left, function) and _is_fixed(text.right, function)
    if isinstance(text, ast.Call):
        ours = isinstance(text.func, ast.Name) and text.func.id in {"read_script", "read_health_script"}
        return ours and all(isinstance(argument, ast.Constant) for argument in text.args)
    if isinstance(text, ast.Attribute):
        return text.attr.isupper()
    if isinstance(text, ast.Name):
        return text.id.isupper() or _assigned(text.id, function)
    return isinstance(text, ast.Constant)


def _assigned(name: str, function: ast.FunctionDef) -> bool:
    """In this function, from fixed texts only."""
    values = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets)
    ]
    return bool(values) and all(_is_fixed(value, function) for value in values)


def test_nobody_else_starts_a_shell_here() -> None:
    """On this computer, programs are started by argument lists."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "shell"
    ]
    assert found == []
