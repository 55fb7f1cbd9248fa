from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.process_lock import holder, kill_holder, wait_for_release

_HOLD_LOCK = """
import sys, time
from pathlib import Path
from orchestrator.process_lock import acquire
acquire(Path(sys.argv[1]), shared=len(sys.argv) > 2)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lock").touch()
    return tmp_path / "lock"


@pytest.fixture
def lock_holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with _hold_lock(path) as process:
        yield process
        process.kill()


def _hold_lock(path: Path, *more: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD_LOCK, str(path), *more], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_free_lock_has_no_holder(path: Path, tmp_path: Path) -> None:
    assert holder(path) is None
    assert holder(tmp_path / "missing") is None


def test_the_kernel_reports_the_holder(path: Path, lock_holder: subprocess.Popen[bytes]) -> None:
    assert holder(path) == lock_holder.pid


def test_checking_the_holder_does_not_release_the_lock(path: Path, lock_holder: subprocess.Popen[bytes]) -> None:
    holder(path)
    assert not wait_for_release(path, 0.1)
    assert holder(path) == lock_holder.pid


def test_killing_the_holder_releases_the_lock(path: Path, lock_holder: subprocess.Popen[bytes]) -> None:
    os.kill(lock_holder.pid, signal.SIGKILL)
    assert wait_for_release(path, 10)


def test_kill_holder_kills_only_the_holder(path: Path, lock_holder: subprocess.Popen[bytes]) -> None:
    kill_holder(path)
    assert lock_holder.wait(10) == -signal.SIGKILL
    kill_holder(path)


def test_a_shared_lock_is_held_until_the_last_holder_exits(path: Path) -> None:
    with _hold_lock(path, "shared") as one, _hold_lock(path, "shared") as other:
        one.kill()
        one.wait()
        assert holder(path) == other.pid
        other.kill()
    assert holder(path) is None
