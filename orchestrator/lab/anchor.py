"""The one process a lab consists of, seen from outside.

    python -m orchestrator.lab.anchor LAB_DIR REPORT_FD GUARD_FD

It is process 1 of a PID namespace and owns the lab's network and mount namespaces. Everything else of the lab
lives inside, so ending this one process, by `lab down` or by a crash, makes the kernel remove all the rest.
Without namespaces (loopback) it is a plain process, and the phones' processes end when it does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.lab import links, lock, phone, syscalls, wire
from orchestrator.lab.identity import map_user
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.listening import is_listening
from orchestrator.lab.processes import wake_on_child_exit
from orchestrator.lab.shape import disk_bytes
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone

_NAMESPACES = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID


@dataclass
class RunningPhone:
    pid: int
    control: socket.socket


@dataclass
class Anchor:
    lab: LabLayout
    spec: LabSpec
    running: dict[str, RunningPhone] = field(default_factory=dict)

    # Building

    def build(self) -> None:
        if self.spec.mode is not Mode.LOOPBACK:
            network = f"{self.spec.host_address}/{self.spec.mode.network.prefixlen}"
            links.configure(*links.switches(self.spec.shape, network))
            for each in self.spec.phones:
                self._mount_data(each)

    def _mount_data(self, each: VirtualPhone) -> None:
        """In the anchor's own mount namespace: the phone's data outlives its being switched off, not the lab."""
        size = disk_bytes(self.spec.shape.disk)
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", self.lab.phone(each.name).data, "tmpfs", flags, f"mode=751,size={size}")

    def power_on(self, phones: Sequence[VirtualPhone]) -> None:
        """Phones put themselves together in parallel; the cables between are laid in one go."""
        started = {each: phone.start(self.lab, self.spec, each) for each in phones}
        pids = {each: int(_hear(control)["pid"]) for each, control in started.items()}
        if self.spec.mode is not Mode.LOOPBACK:
            links.configure(*links.phones(pids.items(), self.spec.shape.rate))
        for control in started.values():
            wire.send(control, {"op": "cable"})
        for each, control in started.items():
            _hear(control)
            self.running[each.name] = RunningPhone(pids[each], control)
            wire.send(control, {"op": "boot"})

    def power_off(self, name: str) -> None:
        gone = self.running.pop(name)
        gone.control.close()
        os.waitpid(gone.pid, 0)

    # Serving

    def serve(self, server: socket.socket) -> NoReturn:
        selector = selectors.DefaultSelector()
        selector.register(server, selectors.EVENT_READ, self._answer)
        selector.register(wake_on_child_exit(), selectors.EVENT_READ, self._reap)
        self._reap_all()
        while True:
            for key, _ in selector.select():
                key.data(key.fileobj)

    def _reap(self, wake: socket.socket) -> None:
        wake.recv(4096)
        self._reap_all()

    def _reap_all(self) -> None:
        """Orphans of the whole lab end here; a phone whose process 1 was killed is off."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, each in self.running.items() if each.pid == pid]:
                self.running.pop(name).control.close()

    def _answer(self, server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            files: list[int] = []
            try:
                message, files = wire.receive(client)
                reply, handed = self._do(message, client, files)
                if reply is not None:
                    wire.send(client, reply, handed)
                    _close(handed)
            except (OSError, KeyError, ValueError, TypeError, EOFError) as error:
                traceback.print_exc()
                _apologise(client, error)
            finally:
                _close(files)

    def _do(
        self, message: dict[str, Any], client: socket.socket, files: list[int]
    ) -> tuple[dict[str, Any] | None, list[int]]:
        match message["op"]:
            case "socket":
                return {}, [socket.socket(socket.AF_INET, socket.SocketKind(message["kind"])).detach()]
            case "status":
                return {"phones": [self._status(each) for each in self.spec.phones]}, []
            case "power":
                self._power(self.spec.phone(message["phone"]), on=message["on"])
                return {}, []
            case "exec":
                wire.send(self._control(message["phone"]), message, [client.fileno(), *files])
                return None, []
            case "sshd":
                wire.send(self._control(message["phone"]), {"op": f"{message['action']}-sshd"})
                return {}, []
            case other:
                raise ValueError(f"the lab does not know {other!r}")

    def _control(self, name: str) -> socket.socket:
        if name not in self.running:
            raise OSError(f"{name} is switched off (clusterctl lab power {name} on)")
        return self.running[name].control

    def _power(self, each: VirtualPhone, *, on: bool) -> None:
        if on and each.name not in self.running:
            self.power_on([each])
        elif not on and each.name in self.running:
            self.power_off(each.name)

    def _status(self, each: VirtualPhone) -> dict[str, Any]:
        pid = self.running[each.name].pid if each.name in self.running else None
        return {"name": each.name, "up": pid is not None, "sshd": is_listening(pid, each.address) if pid else False}


def _hear(control: socket.socket) -> dict[str, Any]:
    try:
        message, _ = wire.receive(control)
    except EOFError:
        raise OSError("a phone ended while it was starting") from None
    if error := message.get("error"):
        raise OSError(error)
    return message


def _apologise(client: socket.socket, error: Exception) -> None:
    with contextlib.suppress(OSError):
        wire.send(client, {"error": str(error)})


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def enter_namespaces(mode: Mode) -> None:
    """Returns in a new process: process 1 of the lab."""
    if mode is Mode.LOOPBACK:
        syscalls.set_child_subreaper()
        return
    if mode is Mode.USER:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        map_user(0, 0, outside_uid=uid, outside_gid=gid)
    syscalls.unshare(_NAMESPACES)
    if os.fork():
        os._exit(0)
    syscalls.mount(None, Path("/"), None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", Path("/proc"), "proc", flags)


def main() -> None:
    lab = LabLayout(Path(sys.argv[1]))
    report = socket.socket(fileno=int(sys.argv[2]))
    guard = int(sys.argv[3])
    spec = LabSpec.from_json(lab.spec.read_text())
    try:
        enter_namespaces(spec.mode)
        lock.hold(lab.root)
        os.close(guard)
        anchor = Anchor(lab, spec)
        anchor.build()
        anchor.power_on(spec.phones)
        server = wire.serve(lab.root)
        wire.send(report, {"ready": True})
    except (OSError, ValueError) as error:
        traceback.print_exc()
        wire.send(report, {"error": str(error)})
        sys.exit(1)
    report.close()
    anchor.serve(server)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
