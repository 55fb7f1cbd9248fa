"""One changed bit in what travels to a phone, and the phone goes on with what it had."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.provision.bundle import _tree_sha256
from orchestrator.provision.resources import read_script
from phone_agent.contract import manifest
from tests.security.fuzz import fuzzed, tried

FILES = {"phone_agent/__init__.py": b"", "phone_agent/train.py": b"print('train')\n" * 20, "lib/libcore.so": bytes(500)}


def phone(root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    (root / "usr/tmp").mkdir(parents=True)
    (root / "home/.clusterctl/agent/releases").mkdir(parents=True)
    return root / "home"


def arrive(home: Path) -> Path:
    incoming = home / ".clusterctl/agent/releases/incoming"
    for name, content in FILES.items():
        (incoming / name).parent.mkdir(parents=True, exist_ok=True)
        (incoming / name).write_bytes(content)
    manifest.write(incoming, version="1", target="host")
    return incoming


def activate(home: Path, name: str, tree: str) -> int:
    environment = {**os.environ, "HOME": str(home), "PREFIX": str(home.parent / "usr")}
    command = ["bash", "-c", read_script("activate-agent"), "clusterctl", name, tree]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, check=False).returncode


def tree_of(home: Path) -> str:
    return _tree_sha256(home / ".clusterctl/agent/releases/incoming")


def test_the_bundle_as_it_was_made_is_put_in_use(tmp_path: Path) -> None:
    home = phone(tmp_path)
    arrive(home)
    assert activate(home, "good", tree_of(home)) == 0
    assert (home / ".clusterctl/agent/current/phone_agent/train.py").exists()


@given(st.sampled_from(sorted(FILES)), st.integers(0, 2000), st.sampled_from(["flip", "add", "link", "remove"]))
@fuzzed(20)
def test_a_changed_bundle_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: int, change: str
) -> None:
    tried("bundles")
    home = phone(tmp_path_factory.getbasetemp() / "tampered")
    incoming = arrive(home)
    tree = tree_of(home)
    if change == "flip":
        content = bytearray((incoming / name).read_bytes() or b"\0")
        content[place % len(content)] ^= 1
        (incoming / name).write_bytes(content)
    elif change == "add":
        (incoming / f"phone_agent/extra{place}.py").write_text("import os")
    elif change == "link":
        (incoming / name).unlink()
        (incoming / name).symlink_to("/etc/passwd")
    else:
        (incoming / name).unlink()
    assert activate(home, "bad", tree) != 0
    assert not (home / ".clusterctl/agent/current").exists()


def test_a_wheel_with_another_sum_is_not_installed(tmp_path: Path) -> None:
    home = phone(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(f"#!/bin/bash\ntouch {tmp_path}/installed\n")
    (tmp_path / "bin/python3").chmod(0o755)
    environment = {**os.environ, "HOME": str(home), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    right = hashlib.sha256(b"a wheel").hexdigest()
    for content, installed in ((b"another wheel", False), (b"a wheel", True)):
        command = ["bash", "-c", read_script("install-wheel"), "clusterctl", "x.whl", right]
        subprocess.run(command, env=environment, cwd=home, input=content, capture_output=True, check=False)
        assert (tmp_path / "installed").exists() is installed
