"""`lab up` and `lab down`. There is one lab per state directory; both commands first remove a broken one."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet.keys import ensure_keypair
from orchestrator.inventory import dump
from orchestrator.lab import ipc, modes
from orchestrator.lab.arch import userland
from orchestrator.lab.client import wait_for_sshd
from orchestrator.lab.config import LabConfig
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.programs import check_programs
from orchestrator.lab.spec import CLUSTER_NAME, LabSpec
from orchestrator.lab.template import remove_phones, write_template
from orchestrator.paths import ClusterState, lab_dir, lab_inventory, state_dir

_LOCK_TIMEOUT_S = 10.0
_LOOPBACK_REMEDY = f"{modes.MODE_VARIABLE}=loopback clusterctl lab up (no namespaces needed)"


@dataclass(frozen=True)
class LabUpResult:
    spec: LabSpec
    fallback_reasons: tuple[str, ...]  # why each better mode was unavailable
    already_running: bool


def up(config: LabConfig, on_event: Callable[[str], None]) -> LabUpResult:
    """Start a lab. `on_event` receives short progress messages."""
    config.validate()
    check_programs(config.arch)
    with _exclusive() as lock_fd:
        if (running := _running_spec()) is not None:
            _require_same_config(running.config, config)
            return LabUpResult(running, (), already_running=True)
        mode, fallback_reasons = modes.select_mode(config.arch)
        programs = userland.ensure_userland(on_event) if config.arch.is_emulated else Path("/")
        _remove(lab_dir())
        octet, reservation = modes.reserve_network(mode)
        spec = LabSpec(mode, config, octet)
        with reservation:
            try:
                _build(spec, programs, (lock_fd, reservation.fileno()), on_event)
            except BaseException:
                _remove(lab_dir())
                raise
        return LabUpResult(spec, tuple(fallback_reasons), already_running=False)


def down() -> bool:
    """Remove the lab, whether it is running or broken. Return False if there was none."""
    if not lab_dir().exists():
        return False
    with _exclusive():
        _remove(lab_dir())
    return True


def is_running() -> bool:
    return _running_spec() is not None


def _running_spec() -> LabSpec | None:
    """The spec of the running lab. None if there is none, or if its `lab up` did not finish."""
    lab = LabLayout(lab_dir())
    if process_lock.holder(lab.daemon_lock) is None or not lab_inventory().exists():
        return None
    return LabSpec.from_json(lab.spec.read_text())


def _require_same_config(running: LabConfig, requested: LabConfig) -> None:
    if running != requested:
        raise UsageError(f"another lab is running: {running}", remedy="clusterctl lab down")


def _build(spec: LabSpec, programs: Path, inherited: tuple[int, int], on_event: Callable[[str], None]) -> None:
    lab = LabLayout(lab_dir())
    state = ClusterState(CLUSTER_NAME)
    ensure_keypair(state.host_key, "clusterctl lab")
    state.known_hosts.unlink(missing_ok=True)  # it holds the host keys of an earlier lab's phones
    on_event("writing a bare Termux and its package repository")
    lab.root.mkdir(mode=0o700)
    lab.userland.symlink_to(programs)
    write_template(lab, spec, state.host_key.with_suffix(".pub").read_text())
    lab.spec.write_text(spec.to_json())
    for file in (lab.daemon_lock, lab.phones_lock):
        file.touch(mode=0o600)
    on_event(f"starting {spec.config.phones} phones")
    _start_daemon(lab, *inherited)
    if missing := wait_for_sshd(lab.root, (phone.name for phone in spec.phones)):
        raise ClusterctlError(f"sshd did not start on {', '.join(missing)}: {_last_line(lab.phone(missing[0]).log)}")
    _write_atomically(lab_inventory(), dump(spec.cluster(lab.root, lab_inventory())))


def _write_atomically(path: Path, text: str) -> None:
    """The inventory marks the lab as complete, so it must never be seen half-written."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


def _start_daemon(lab: LabLayout, lock_fd: int, network_fd: int) -> None:
    """Start the daemon and return when all phones are up.

    The daemon inherits `lock_fd`, which keeps other lab commands out until it holds its own lock, and `network_fd`,
    which reserves the addresses of the lab as long as it runs.
    """
    here, there = ipc.pair()
    inherited = [there.fileno(), lock_fd, network_fd]
    command = [sys.executable, "-m", "orchestrator.lab.daemon", str(lab.root), *map(str, inherited)]
    with here, lab.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=inherited,
            start_new_session=True,
        )
        there.close()
        _await_ready(here, lab)
    process.returncode = 0  # the daemon keeps running (in namespaces: its child); suppress Popen's warning about it


def _await_ready(report: socket.socket, lab: LabLayout) -> None:
    message: dict[str, object] = {}
    while "ready" not in message:
        try:
            message, _ = ipc.receive(report)
        except (EOFError, ConnectionError):
            message = {"error": f"the lab daemon exited: {_last_line(lab.log)}"}
        if error := message.get("error"):
            raise ClusterctlError(f"the lab did not start: {error}", remedy=_LOOPBACK_REMEDY)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line), "no output")


def _remove(root: Path) -> None:
    """Kill the daemon, and with it all processes and mounts of the lab; then delete its files."""
    lab = LabLayout(root)
    process_lock.kill_holder(lab.daemon_lock)
    while not process_lock.wait_for_release(lab.phones_lock, _LOCK_TIMEOUT_S):
        process_lock.kill_holder(lab.phones_lock)
    remove_phones(lab)
    if root.exists():
        shutil.rmtree(root)


@contextmanager
def _exclusive() -> Iterator[int]:
    """Allow one lab command at a time. The state directory itself is locked, so no lock file is left behind."""
    state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(state_dir(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(fd)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                remedy = "wait until it has finished, then try again"
                raise ClusterctlError("another `clusterctl lab` command is running", remedy=remedy) from None
            time.sleep(0.1)
