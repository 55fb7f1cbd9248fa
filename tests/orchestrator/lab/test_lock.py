from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.lab.lock import await_release, holder, kill_holder

_HOLDING = """
import sys, time
from pathlib import Path
from orchestrator.lab.lock import hold
hold(Path(sys.argv[1]), shared=len(sys.argv) > 2)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lock").touch()
    return tmp_path / "lock"


@pytest.fixture
def keeper(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with _keep(path) as process:
        yield process
        process.kill()


def _keep(path: Path, *more: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _HOLDING, str(path), *more], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_nobody_holds_a_free_lock(path: Path, tmp_path: Path) -> None:
    assert holder(path) is None
    assert holder(tmp_path / "missing") is None


def test_the_kernel_knows_the_holder(path: Path, keeper: subprocess.Popen[bytes]) -> None:
    assert holder(path) == keeper.pid


def test_looking_does_not_release_it(path: Path, keeper: subprocess.Popen[bytes]) -> None:
    holder(path)
    assert not await_release(path, 0.1)
    assert holder(path) == keeper.pid


def test_a_killed_holder_holds_nothing(path: Path, keeper: subprocess.Popen[bytes]) -> None:
    os.kill(keeper.pid, signal.SIGKILL)
    assert await_release(path, 10)


def test_kill_holder_ends_it_and_nothing_else(path: Path, keeper: subprocess.Popen[bytes]) -> None:
    kill_holder(path)
    assert keeper.wait(10) == -signal.SIGKILL
    kill_holder(path)


def test_a_shared_lock_is_held_until_the_last_lets_go(path: Path) -> None:
    with _keep(path, "shared") as one, _keep(path, "shared") as other:
        one.kill()
        one.wait()
        assert holder(path) == other.pid
        other.kill()
    assert holder(path) is None
