from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

CLUSTERCTL = (sys.executable, "-m", "orchestrator.cli.app")


def clusterctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLUSTERCTL, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_version() -> None:
    assert clusterctl("--version").stdout == f"clusterctl {version('clusterctl')}\n"


@pytest.mark.parametrize(
    "command", [("hosts", "key", "-i", "inventory.yaml"), ("build", "--target", "host", "--out", "FILE/x")]
)
def test_an_unwritable_path_is_a_usage_error_without_traceback(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = str(tmp_path / "file")
    done = clusterctl(*(word.replace("FILE", blocked) for word in command), CLUSTERCTL_STATE=f"{blocked}/state")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {blocked}")
    assert "Traceback" not in done.stderr


def test_a_new_cluster_has_no_runs(tmp_path: Path) -> None:
    done = clusterctl("runs", "--json", "-i", "inventory.yaml", CLUSTERCTL_STATE=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "[]\n")
