from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import phone_agent
from orchestrator.errors import UsageError
from orchestrator.provision.bundle import Target, build_bundle, build_bundles
from phone_agent.api import bundle as agent_files
from phone_agent.contract import manifest
from phone_agent.core import build
from tests.phone_agent.core import elf

CORE = "phone_agent/core/lib/libcore.so"


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mode for path in (root, *root.rglob("*"))}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("target", Target)
def test_two_builds_give_the_same_bytes(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_bundle(target, tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    with umask(0o077):
        second = build_bundle(target, Path("below/b, with a space"))
    assert contents(first.path) == contents(second.path)
    assert modes(first.path) == modes(second.path)
    assert (first.id, first.tree_sha256) == (second.id, second.tree_sha256)


@pytest.mark.slow
def test_another_checkout_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another directory, other dates of the sources, and an empty compiler cache."""
    here = build_bundle(Target.AARCH64_ANDROID, tmp_path / "here")
    package = tmp_path / "elsewhere/phone_agent"
    shutil.copytree(Path(phone_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in package.rglob("*"):
        os.utime(path, (1, 1))
    monkeypatch.setenv("CLUSTERCTL_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(agent_files, "PACKAGE", package)
    monkeypatch.setattr(build, "SOURCES", package / "core/src")
    monkeypatch.setattr(build, "UNITS", package / "core/src/units")
    with umask(0o077):
        there = build_bundle(Target.AARCH64_ANDROID, tmp_path / "there")
    assert contents(here.path) == contents(there.path)
    assert (here.id, here.tree_sha256) == (there.id, there.tree_sha256)


def test_the_bundle_contains_only_the_agent(tmp_path: Path) -> None:
    build_bundle(Target.AARCH64_ANDROID, tmp_path / "out")
    names = set(contents(tmp_path / "out"))
    assert {"manifest.json", "phone_agent/__main__.py", "phone_agent/contract/schema.py"} <= names
    assert "phone_agent/backends/opencl/kernels/common.cl" in names
    assert {name for name in names if not name.endswith((".py", ".cl"))} == {
        "manifest.json",
        CORE,
        "phone_agent/bind_shim/libbind_shim.so",
        "phone_agent/rank_launcher/rank_launcher",
    }
    assert elf.Elf(tmp_path / "out" / CORE).machine == 183  # aarch64
    assert json.loads((tmp_path / "out/manifest.json").read_text())["target"] == "aarch64-android"


def test_the_agent_verifies_its_own_manifest(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    assert manifest.verify(bundle.path) == []
    (bundle.path / "phone_agent/contract/schema.py").write_text("tampered")
    assert manifest.verify(bundle.path) == ["phone_agent/contract/schema.py is damaged"]


def test_the_target_is_part_of_the_release(tmp_path: Path) -> None:
    ids = {build_bundle(target, tmp_path / target.value).id for target in Target}
    assert len(ids) == len(Target)


def test_each_architecture_gets_its_own_core(tmp_path: Path) -> None:
    here = os.uname().machine
    bundles = build_bundles({"aarch64", here, "i686"}, tmp_path)
    assert bundles.keys() == {"aarch64", here}, "there are no kernels for 32 bits"
    for architecture, bundle in bundles.items():
        made_for = "aarch64-android" if architecture == "aarch64" else "host"
        assert json.loads((bundle.path / "manifest.json").read_text())["target"] == made_for


def test_an_earlier_bundle_is_replaced_but_no_other_directory(tmp_path: Path) -> None:
    build_bundle(Target.HOST, tmp_path / "out")
    (tmp_path / "out/stray").touch()
    build_bundle(Target.HOST, tmp_path / "out")
    assert not (tmp_path / "out/stray").exists()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    with pytest.raises(UsageError, match="not an agent bundle"):
        build_bundle(Target.HOST, tmp_path / "precious")
    assert (tmp_path / "precious/file").exists()


def agent(release: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As on a phone: without compiler and sources."""
    environment = {"PYTHONPATH": str(release), "PATH": "/nonexistent", "HOME": str(release.parent)}
    command = [sys.executable, "-S", "-c", RUN_WITHOUT_ZIG, *arguments]
    return subprocess.run(command, cwd=release, env=environment, capture_output=True, text=True, check=False)


# Site packages without the compiler.
RUN_WITHOUT_ZIG = f"""
import runpy, sys
sys.path += {[path for path in sys.path if "site-packages" in path]!r}
sys.modules["ziglang"] = None
sys.argv = ["phone_agent.core", *sys.argv[1:]]
runpy.run_module("phone_agent.core", run_name="__main__")
"""


def test_the_core_of_a_bundle_runs_on_its_own(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    done = agent(bundle.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split(", ")[-1].strip() in {"sse2", "neon"}
    assert not (tmp_path / ".cache").exists(), "it was built again"


def test_a_missing_core_is_reported_with_a_remedy(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    (bundle.path / CORE).unlink()
    done = agent(bundle.path)
    assert done.returncode == 1
    assert "libcore.so is missing: provision this phone again (clusterctl provision)" in done.stderr


def test_a_core_for_another_processor_is_reported(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    foreign = build.X86_64 if build.host_target() is build.AARCH64_LINUX else build.AARCH64_ANDROID
    (bundle.path / CORE).write_bytes(build.cached(foreign).read_bytes())
    done = agent(bundle.path)
    assert done.returncode == 1
    assert "provision the phone again" in done.stderr


def test_a_truncated_core_is_reported(tmp_path: Path) -> None:
    bundle = build_bundle(Target.HOST, tmp_path / "out")
    whole = (bundle.path / CORE).read_bytes()
    (bundle.path / CORE).write_bytes(whole[: len(whole) // 2])
    done = agent(bundle.path)
    assert done.returncode == 1
    assert f"libcore.so is truncated: {len(whole) // 2} of {len(whole)} bytes: provision" in done.stderr
