"""Bringing a lab up and down. One lab a state directory; a broken one is removed on the way."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ClusterctlError, UsageError
from orchestrator.fleet.keys import ensure_keypair
from orchestrator.inventory import dump
from orchestrator.lab import lock, modes, wire
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.shape import Shape
from orchestrator.lab.spec import CLUSTER_NAME, LabSpec
from orchestrator.lab.template import write_template
from orchestrator.paths import ClusterState, lab_dir, lab_inventory, state_dir

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class LabUp:
    spec: LabSpec
    objections: tuple[str, ...]  # why a better mode was not possible
    was_up: bool


def up(shape: Shape, on_event: Callable[[str], None]) -> LabUp:
    shape.check()
    modes.check_programs()
    with _alone() as guard:
        if (present := _present()) is not None:
            _same_or_error(present.shape, shape)
            return LabUp(present, (), was_up=True)
        _remove(lab_dir())
        mode, objections = modes.choose()
        spec = LabSpec(mode, shape)
        try:
            _build(spec, guard, on_event)
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
    if lock.holder(lab.root) is None or not lab_inventory().exists():
        return None
    return LabSpec.from_json(lab.spec.read_text())


def _same_or_error(present: Shape, wanted: Shape) -> None:
    if present != wanted:
        raise UsageError(f"another lab is up: {present}", remedy="clusterctl lab down")


def _build(spec: LabSpec, guard: int, on_event: Callable[[str], None]) -> None:
    lab = LabLayout(lab_dir())
    state = ClusterState(CLUSTER_NAME)
    ensure_keypair(state.host_key, "clusterctl lab")
    state.known_hosts.unlink(missing_ok=True)  # the phones of an earlier lab are gone, and so are their keys
    on_event("writing a bare Termux and its package repository")
    lab.root.mkdir(mode=0o700)
    write_template(lab, spec, state.host_key.with_suffix(".pub").read_text())
    lab.spec.write_text(spec.to_json())
    (lab.root / lock.LOCK_NAME).touch()
    on_event(f"starting {spec.shape.phones} phones")
    _start_anchor(lab, guard)
    lab_inventory().write_text(dump(spec.cluster(lab.root, lab_inventory())))


def _start_anchor(lab: LabLayout, guard: int) -> None:
    """Returns when all phones are up. The guard keeps other lab commands out until the anchor has its lock."""
    here, there = wire.pair()
    with here, there, lab.log.open("wb") as log:
        command = [sys.executable, "-m", "orchestrator.lab.anchor", str(lab.root), str(there.fileno()), str(guard)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[there.fileno(), guard],
            start_new_session=True,
            env={**os.environ, "PATH": modes.search_path()},
        )
        there.close()
        _await_ready(here, lab)
    process.poll()


def _await_ready(report: socket.socket, lab: LabLayout) -> None:
    try:
        message, _ = wire.receive(report)
    except EOFError:
        message = {"error": f"the lab's process ended: {_last_line(lab.log)}"}
    if error := message.get("error"):
        raise ClusterctlError(
            f"the lab did not come up: {error}", remedy="CLUSTERCTL_LAB_MODE=loopback clusterctl lab up"
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line), "no word from it")


def _remove(root: Path) -> None:
    """Ends the anchor, and with it everything that runs or is mounted; then only files are left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if lock.end_holder(root, number, _PATIENCE_S):
            break
    shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _alone() -> Iterator[int]:
    """One lab command at a time. The lock is on the state directory itself: no lock file stays behind."""
    state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(state_dir(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield fd
    except BlockingIOError:
        raise ClusterctlError("another `clusterctl lab` command is at work", remedy="wait for it to end") from None
    finally:
        os.close(fd)
