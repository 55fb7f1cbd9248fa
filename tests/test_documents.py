"""The documents: links lead somewhere, and the code map names files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
