"""Every broken inventory in broken/ says in its own comments what must be printed about it.

`#! message` stands on the line the message is about; `#!file message` is about the file as a whole. A file must give
exactly the problems it announces: none is forgotten, none follows from another.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import EXIT_USAGE, InventoryError, Problem
from orchestrator.inventory import load
from orchestrator.inventory.document import LARGEST_FILE

BROKEN = sorted((Path(__file__).parent / "broken").glob("*.yaml"))


def announced(path: Path) -> list[Problem]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for note in line.split("#!")[1:]:
            whole_file = note.startswith("file ")
            found.append(Problem(0 if whole_file else number, note.removeprefix("file ").strip()))
    return sorted(found)


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_inventory_tells_exactly_what_is_wrong(path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.problems == announced(path)
    assert caught.value.exit_code == EXIT_USAGE


def test_there_are_broken_inventories() -> None:
    assert len(BROKEN) >= 20


def only_problem(path: Path) -> Problem:
    with pytest.raises(InventoryError) as caught:
        load(path)
    (problem,) = caught.value.problems
    return problem


def test_absent_file(tmp_path: Path) -> None:
    missing = tmp_path / "inventory.yaml"
    with pytest.raises(InventoryError) as caught:
        load(missing)
    assert caught.value.message == f"{missing}: cannot be read: no such file or directory"


def test_directory(tmp_path: Path) -> None:
    assert only_problem(tmp_path) == Problem(0, "cannot be read: is a directory")


def test_unreadable_file() -> None:
    assert only_problem(Path("/proc/self/mem")) == Problem(0, "cannot be read: input/output error")


def test_endless_file() -> None:
    assert only_problem(Path("/dev/zero")) == Problem(0, "is larger than 4 MiB: this is not an inventory")


def test_largest_file_is_still_read(tmp_path: Path) -> None:
    padded = tmp_path / "inventory.yaml"
    padded.write_bytes(b"#" * LARGEST_FILE)
    assert only_problem(padded).message.startswith("is empty")


def test_not_utf8(tmp_path: Path) -> None:
    latin = tmp_path / "inventory.yaml"
    latin.write_bytes("cluster: c\n# Gerät\n".encode("latin-1"))
    expected = "is not UTF-8 text: byte 0xe4 is invalid; save the file as UTF-8"
    assert only_problem(latin) == Problem(2, expected)


def test_control_characters(tmp_path: Path) -> None:
    binary = tmp_path / "inventory.yaml"
    binary.write_bytes(b"cluster: c\nnetwork: \x00\n")
    assert only_problem(binary) == Problem(2, "not YAML: control characters are not allowed in a text file")


def test_message_quotes_no_more_than_a_person_reads(tmp_path: Path) -> None:
    long = tmp_path / "inventory.yaml"
    long.write_text("x" * 100_000 + ": 1\n", encoding="utf-8")
    with pytest.raises(InventoryError) as caught:
        load(long)
    assert all(len(problem.message) < 500 for problem in caught.value.problems)
