"""The lab from the inside: switches, cables, and phones that can be switched on and off."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import ClusterctlError
from orchestrator.lab import cables, links, phone, syscalls
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.listening import is_listening
from orchestrator.lab.processes import descendants, kill
from orchestrator.lab.quirks import network
from orchestrator.lab.shape import disk_bytes
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone

_DATA_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV


@dataclass
class RunningPhone:
    pid: int  # of its process 1
    control: socket.socket


@dataclass
class Rack:
    lab: LabLayout
    spec: LabSpec
    running: dict[str, RunningPhone] = field(default_factory=dict)

    @property
    def _has_namespaces(self) -> bool:
        return self.spec.mode is not Mode.LOOPBACK

    def build(self) -> None:
        """Switches, and a disk for every phone. Disks are the rack's: they outlive a phone's being switched off."""
        if not self._has_namespaces:
            return
        links.configure(*links.switches(self.spec))
        size = disk_bytes(self.spec.shape.disk)
        for each in self.spec.phones:
            data = self.lab.phone(each.name).data
            syscalls.mount("tmpfs", data, "tmpfs", _DATA_FLAGS, f"mode=751,size={size}")

    def power_on(self, phones: Sequence[VirtualPhone], on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Phones put themselves together in parallel; the cables to them are laid in one go."""
        controls = {each: phone.start(self.lab, self.spec, each) for each in phones}
        pids = {each: int(_hear(control)["pid"]) for each, control in controls.items()}
        if self._has_namespaces:
            links.configure(*links.phones(pids.items(), self.spec.shape.rate))
        for control in controls.values():
            cables.send(control, {"op": "cable"})
        for count, (each, control) in enumerate(controls.items(), start=1):
            _hear(control)
            self.running[each.name] = RunningPhone(pids[each], control)
            cables.send(control, {"op": "boot"})
            on_progress(count)
        if self._has_namespaces:
            links.reachable_again(phones)

    def power_off(self, name: str) -> None:
        os.waitpid(self._forget(name), 0)

    def _forget(self, name: str) -> int:
        """Ends a phone's process 1, if it is alive, and returns its process id."""
        gone = self.running.pop(name)
        gone.control.close()
        if self._has_namespaces:
            links.remove(self.spec.phone(name).cable)
        return gone.pid

    def reap(self) -> None:
        """Orphans of the whole lab end here. A phone whose process 1 was killed is off."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, each in self.running.items() if each.pid == pid]:
                self._forget(name)
                self._end_strays()

    def _end_strays(self) -> None:
        """Without a PID namespace the kernel does not end a phone's processes with its process 1."""
        inits = {each.pid for each in self.running.values()}
        for process in descendants(os.getpid()):
            if process.parent == os.getpid() and process.pid not in inits:
                for orphan in (process, *descendants(process.pid)):
                    kill(orphan.pid, signal.SIGKILL)

    def tell(self, name: str, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """A message to a phone's process 1."""
        self._need_power(name)
        cables.send(self.running[name].control, message, files)

    def set_link(self, name: str, state: str) -> None:
        """Pulls the phone's cable, or plugs it in again."""
        self._need_namespaces("cables")
        self._need_power(name)
        links.configure([f"link set {self.spec.phone(name).cable} {state}"])

    def leaves_to_phone(self, name: str, habit: str) -> bool:
        """Its network is arranged from outside; a phone that is off looks at its scenario when it starts."""
        return habit not in network.KEYS and name in self.running

    def rewire(self, name: str) -> None:
        """Makes a phone's network as its scenario says. One that is off finds out when it starts."""
        if name in self.running:
            wiring = network.Wiring(self.spec, self.spec.phone(name), self.lab.phone(name).scenario)
            wiring.apply(within=self.running[name].pid)

    def set_disk(self, name: str, *, full: bool) -> None:
        """A full disk is one that was remounted to the size of what is on it."""
        self._need_namespaces("disks of their own")
        data = self.lab.phone(name).data
        present = os.statvfs(data)
        used = (present.f_blocks - present.f_bfree) * present.f_frsize
        size = used if full else disk_bytes(self.spec.shape.disk)
        syscalls.mount(None, data, None, syscalls.MS_REMOUNT | _DATA_FLAGS, f"size={size}")

    def _need_power(self, name: str) -> None:
        if name not in self.running:
            raise ClusterctlError(f"{name} is switched off", remedy=f"clusterctl lab power {name} on")

    def _need_namespaces(self, what: str) -> None:
        if not self._has_namespaces:
            remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
            raise ClusterctlError(f"phones on the loopback interface have no {what}", remedy=remedy)

    def status(self) -> list[dict[str, Any]]:
        return [self._status(each) for each in self.spec.phones]

    def _status(self, each: VirtualPhone) -> dict[str, Any]:
        pid = self.running[each.name].pid if each.name in self.running else None
        return {"name": each.name, "up": pid is not None, "sshd": pid is not None and is_listening(pid, each.address)}


def _hear(control: socket.socket) -> dict[str, Any]:
    try:
        message, _ = cables.receive(control)
    except EOFError:
        raise OSError("a phone ended while it was starting") from None
    if error := message.get("error"):
        raise OSError(error)
    return message
