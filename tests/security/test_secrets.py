"""Private keys are in their files, readable by their owner, and nowhere else: no log, no process list, no message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.labs import TestLab

pytestmark = pytest.mark.lab


class ProcessList:
    """Every command line on this computer and on all virtual phones, from now to the end of the block."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._end = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._end.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._end.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes())
                except OSError:
                    continue


def secret_lines(key: Path) -> list[bytes]:
    """Of a private key, what is not in every key nor in its public half."""
    return [line for line in key.read_bytes().splitlines() if line and not line.startswith(b"-----")][2:]


def test_keys_are_in_no_process_list_log_or_message(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    state = lab.state / "clusters" / "lab"
    keys = [path.with_suffix("") for path in state.glob("*.pub")]
    assert {path.name for path in keys} >= {"id_ed25519", "phones_ed25519"}
    secrets = [line for path in keys for line in secret_lines(path)]
    lab.on("p1-01", "rm", "-f", ".ssh/clusterctl_ed25519")  # so that it travels again
    processes = ProcessList()
    with processes.watched():
        done = lab.clusterctl("provision", "--limit", "p1-01", "--json")
    assert "install the key for ssh between phones" in done.stdout
    assert any(b"clusterctl" in line or b"orchestrator.cli" in line for line in processes.seen)
    said = [done.stdout.encode(), done.stderr.encode()]
    files = [path for path in lab.state.rglob("*") if path.is_file() and path not in keys]
    kept = [path.read_bytes() for path in files if path.stat().st_size < 5_000_000 and "root" not in path.parts]
    for secret in secrets:
        assert not [line for line in processes.seen if secret in line]
        assert not [text for text in (*said, *kept) if secret in text]


def test_keys_are_readable_by_their_owner_only(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    for path in (lab.state / "clusters" / "lab").glob("*_ed25519"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert (lab.state / "clusters" / "lab").stat().st_mode & 0o077 == 0
    modes = lab.on("p1-01", "stat", "-c", "%a %n", ".ssh", ".ssh/clusterctl_ed25519", ".ssh/authorized_keys").stdout
    assert modes.split()[::2] == ["700", "600", "600"]


def test_no_log_on_a_phone_holds_a_key(provisioned_lab4: TestLab) -> None:
    secret = secret_lines(provisioned_lab4.state / "clusters/lab/phones_ed25519")[0].decode()
    found = provisioned_lab4.on("p1-01", "grep", "-rlF", "--", secret, ".", "../usr/var", "../usr/tmp", check=False)
    assert found.stdout.split() == ["./.ssh/clusterctl_ed25519"]
