"""The documents: links resolve, named files exist, and the reference pages are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from orchestrator.cli.app import app
from orchestrator.health.checks import ALL_CHECKS
from phone_agent.contract.errors import ErrorCode

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:orchestrator|phone_agent|tests|benchmarks|provisioning|scripts)/[\w./-]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    paths = [path for path in _PATH.findall(page.read_text(encoding="utf-8")) if not path.endswith(".so")]  # built
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_package_is_on_the_code_map() -> None:
    text = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    host = [path.parent.name for path in ROOT.glob("orchestrator/*/__init__.py")]
    assert [name for name in host if f"`orchestrator/{name}/`" not in text] == []
    agent = [path.parent.name for path in ROOT.glob("phone_agent/*/__init__.py")]
    assert [name for name in agent if f"`phone_agent/{name}/`" not in text and f"`{name}/`" not in text] == []


def _table_column(page: str, column: int) -> list[str]:
    """Cells of one column of all tables of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    return [row[column].strip() for row in rows if column < len(row)]


def _command_names(group: Any, prefix: str = "") -> Iterator[str]:
    """`launch`, `data add`, …: every command, without the groups themselves."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _command_names(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def _unknown_words(line: str, command: Any) -> list[str]:
    """Subcommands and flags of a `clusterctl` line that do not exist."""
    words = line.partition("#")[0].split()[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        return words[:1]
    known = {"--help", "-h", *(flag for option in command.params for flag in (*option.opts, *option.secondary_opts))}
    flags = [word.strip("[]").partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    return [flag for flag in flags if re.match(r"--?[a-z]", flag) and flag not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_in_examples_exist(page: Path) -> None:
    lines = re.findall(r"^    (?:\$ )?(clusterctl [a-z].*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {line: unknown for line in lines if (unknown := _unknown_words(line, get_command(app)))} == {}


def test_every_error_code_is_documented_once() -> None:
    codes = [cell.strip("`") for cell in _table_column("reference/error-codes.md", 0) if cell.startswith("`")]
    assert sorted(codes) == sorted(code.value for code in ErrorCode)


def test_every_command_is_documented() -> None:
    documented = {cell.strip("`") for cell in _table_column("reference/commands.md", 0)}
    assert [name for name in _command_names(get_command(app)) if name not in documented] == []


def test_every_check_of_doctor_is_documented_with_its_row() -> None:
    rows = [cell.removesuffix("*").strip() for cell in _table_column("guide/troubleshooting.md", 0)]
    documented = set(zip(rows, _table_column("guide/troubleshooting.md", 1), strict=True))
    assert [check.name for check in ALL_CHECKS if (str(check.row or ""), check.name) not in documented] == []


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
