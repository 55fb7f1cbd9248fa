from __future__ import annotations

from pathlib import Path

import pytest

from phone_agent.contract import manifest
from phone_agent.contract.errors import AgentError


@pytest.fixture
def release(tmp_path: Path) -> Path:
    (tmp_path / "phone_agent" / "nn").mkdir(parents=True)
    for name in ("phone_agent/a.py", "phone_agent/nn/b.py"):
        (tmp_path / name).write_text(name)
    manifest.write(tmp_path, version="1.2", target="aarch64-android")
    return tmp_path


def test_a_whole_release_verifies(release: Path) -> None:
    assert manifest.verify(release) == []
    document = manifest.read(release)
    assert (document["version"], document["target"]) == ("1.2", "aarch64-android")
    assert sorted(document["files"]) == ["phone_agent/a.py", "phone_agent/nn/b.py"]


def test_pythons_caches_do_not_matter(release: Path) -> None:
    (release / "phone_agent" / "__pycache__").mkdir()
    (release / "phone_agent" / "__pycache__" / "a.pyc").write_text("x")
    assert manifest.verify(release) == []


def test_every_difference_is_told(release: Path) -> None:
    (release / "phone_agent" / "a.py").write_text("changed")
    (release / "phone_agent" / "nn" / "b.py").unlink()
    (release / "extra.py").write_text("x")
    assert manifest.verify(release) == [
        "extra.py is not in the manifest",
        "phone_agent/a.py is damaged",
        "phone_agent/nn/b.py is missing",
    ]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"version": "1"}'])
def test_a_manifest_that_is_none_is_told(release: Path, content: str | None) -> None:
    path = release / "manifest.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(AgentError, match=r"manifest\.json is missing or damaged: provision"):
        manifest.verify(release)
