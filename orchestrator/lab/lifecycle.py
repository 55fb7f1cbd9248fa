"""Bringing a lab up and down. One lab a state directory; a broken one is removed on the way."""

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

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet.keys import ensure_keypair
from orchestrator.inventory import dump
from orchestrator.lab import cables, lock, modes
from orchestrator.lab.arch import userland
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.programs import check_programs
from orchestrator.lab.shape import Shape
from orchestrator.lab.spec import CLUSTER_NAME, LabSpec
from orchestrator.lab.status import await_sshd
from orchestrator.lab.template import remove_phones, write_template
from orchestrator.paths import ClusterState, lab_dir, lab_inventory, state_dir

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class LabUp:
    spec: LabSpec
    objections: tuple[str, ...]  # why a better mode was not possible
    was_up: bool


def up(shape: Shape, on_event: Callable[[str], None]) -> LabUp:
    """`on_event` is told, in a few words, what is going on."""
    shape.check()
    check_programs(shape.arch)
    with _alone() as guard:
        if (present := _present()) is not None:
            _same_or_error(present.shape, shape)
            return LabUp(present, (), was_up=True)
        mode, objections = modes.choose(shape.arch)
        programs = userland.ensure(on_event) if shape.arch.is_emulated else Path("/")
        _remove(lab_dir())
        spec = LabSpec(mode, shape, modes.free_octet(mode))
        try:
            _build(spec, programs, guard, on_event)
        except BaseException:
            _remove(lab_dir())
            raise
        return LabUp(spec, tuple(objections), was_up=False)


def down() -> bool:
    """Removes the lab, whatever is left of it. False if there was nothing."""
    if not lab_dir().exists():
        return False
    with _alone():
        _remove(lab_dir())
    return True


def _present() -> LabSpec | None:
    """The lab that is up; None as well for one whose `lab up` did not get to the end."""
    lab = LabLayout(lab_dir())
    if lock.holder(lab.anchor_lock) is None or not lab_inventory().exists():
        return None
    return LabSpec.from_json(lab.spec.read_text())


def _same_or_error(present: Shape, wanted: Shape) -> None:
    if present != wanted:
        raise UsageError(f"another lab is up: {present}", remedy="clusterctl lab down")


def _build(spec: LabSpec, programs: Path, guard: int, on_event: Callable[[str], None]) -> None:
    lab = LabLayout(lab_dir())
    state = ClusterState(CLUSTER_NAME)
    ensure_keypair(state.host_key, "clusterctl lab")
    state.known_hosts.unlink(missing_ok=True)  # the phones of an earlier lab are gone, and so are their keys
    on_event("writing a bare Termux and its package repository")
    lab.root.mkdir(mode=0o700)
    lab.userland.symlink_to(programs)
    write_template(lab, spec, state.host_key.with_suffix(".pub").read_text())
    lab.spec.write_text(spec.to_json())
    for file in (lab.anchor_lock, lab.phones_lock):
        file.touch(mode=0o600)
    on_event(f"starting {spec.shape.phones} phones")
    _start_anchor(lab, guard)
    if silent := await_sshd(lab.root, (phone.name for phone in spec.phones)):
        raise ClusterctlError(f"no sshd came up on {', '.join(silent)}: {_last_line(lab.phone(silent[0]).log)}")
    _replace(lab_inventory(), dump(spec.cluster(lab.root, lab_inventory())))


def _replace(path: Path, text: str) -> None:
    """The inventory says that the lab is complete, so it appears at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def _start_anchor(lab: LabLayout, guard: int) -> None:
    """Returns when all phones are up. The guard keeps other lab commands out until the anchor has its lock."""
    here, there = cables.pair()
    command = [sys.executable, "-m", "orchestrator.lab.daemon", str(lab.root), str(there.fileno()), str(guard)]
    with here, lab.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[there.fileno(), guard],
            start_new_session=True,
        )
        there.close()
        _await_ready(here, lab)
    process.returncode = 0  # in namespaces its child goes on; either way it is not ours to wait for


def _await_ready(report: socket.socket, lab: LabLayout) -> None:
    message: dict[str, object] = {}
    while "ready" not in message:
        try:
            message, _ = cables.receive(report)
        except (EOFError, ConnectionError):
            message = {"error": f"the lab's process ended: {_last_line(lab.log)}"}
        if error := message.get("error"):
            raise ClusterctlError(f"the lab did not come up: {error}", remedy=_OTHER_WAY)


_OTHER_WAY = f"{modes.FORCE_VARIABLE}=loopback clusterctl lab up (no namespaces needed)"


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line), "no word from it")


def _remove(root: Path) -> None:
    """Ends the anchor, and with it everything that runs or is mounted; then only files are left."""
    lab = LabLayout(root)
    lock.kill_holder(lab.anchor_lock)
    while not lock.await_release(lab.phones_lock, _PATIENCE_S):
        lock.kill_holder(lab.phones_lock)
    remove_phones(lab)
    if root.exists():
        shutil.rmtree(root)


@contextmanager
def _alone() -> Iterator[int]:
    """One lab command at a time. The lock is on the state directory itself: no lock file stays behind."""
    state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(state_dir(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(fd)
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                remedy = "wait until it has ended, then try again"
                raise ClusterctlError("another `clusterctl lab` command is at work", remedy=remedy) from None
            time.sleep(0.1)
