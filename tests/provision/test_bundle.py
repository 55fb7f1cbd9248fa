from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.provision.bundle import Target, build_bundle
from phone_agent import manifest


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    first = build_bundle(Target.HOST, tmp_path / "a")
    second = build_bundle(Target.HOST, tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert (first.id, first.tree_sha256) == (second.id, second.tree_sha256)


def test_it_holds_the_agent_and_nothing_else(tmp_path: Path) -> None:
    build_bundle(Target.AARCH64_ANDROID, tmp_path / "out")
    names = set(contents(tmp_path / "out"))
    assert {"manifest.json", "phone_agent/__main__.py", "phone_agent/schema.py"} <= names
    assert all(name == "manifest.json" or name.endswith(".py") for name in names)
    assert json.loads((tmp_path / "out/manifest.json").read_text())["target"] == "aarch64-android"


def test_the_agents_own_check_agrees(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    assert manifest.verify(bundle.path) == []
    (bundle.path / "phone_agent/schema.py").write_text("tampered")
    assert manifest.verify(bundle.path) == ["phone_agent/schema.py is damaged"]


def test_the_target_is_part_of_the_release(tmp_path: Path) -> None:
    ids = {build_bundle(target, tmp_path / target.value).id for target in Target}
    assert len(ids) == len(Target)


def test_an_earlier_bundle_is_replaced_and_other_directories_are_left_alone(tmp_path: Path) -> None:
    build_bundle(Target.HOST, tmp_path / "out")
    (tmp_path / "out/stray").touch()
    build_bundle(Target.HOST, tmp_path / "out")
    assert not (tmp_path / "out/stray").exists()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    with pytest.raises(UsageError, match="holds no agent bundle"):
        build_bundle(Target.HOST, tmp_path / "precious")
    assert (tmp_path / "precious/file").exists()
