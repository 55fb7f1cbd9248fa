"""The inside of the lab: switches, links, and phones that can be powered on and off."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import ClusterctlError
from orchestrator.lab import ipc, links, phone, syscalls
from orchestrator.lab.config import parse_size
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.processes import descendants, kill
from orchestrator.lab.quirks import network
from orchestrator.lab.spec import SSH_PORT, LabSpec, Mode, VirtualPhone

_DATA_MOUNT_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
_LISTEN = "0A"


@dataclass
class RunningPhone:
    pid: int  # of the phone's process 1
    control: socket.socket


@dataclass
class VirtualRack:
    lab: LabLayout
    spec: LabSpec
    running: dict[str, RunningPhone] = field(default_factory=dict)

    @property
    def _has_namespaces(self) -> bool:
        return self.spec.mode is not Mode.LOOPBACK

    def build(self) -> None:
        """Create the switches and one disk per phone. The rack owns the disks, so they survive a power-off."""
        if not self._has_namespaces:
            return
        links.configure(*links.switch_commands(self.spec))
        size = parse_size(self.spec.config.disk)
        for each in self.spec.phones:
            data = self.lab.phone(each.name).data
            syscalls.mount("tmpfs", data, "tmpfs", _DATA_MOUNT_FLAGS, f"mode=751,size={size}")

    def power_on(self, phones: Sequence[VirtualPhone], on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Start phones in parallel. Their links are created in one batch, which is much faster than one by one."""
        controls = {each: phone.fork_phone(self.lab, self.spec, each) for each in phones}
        pids = {each: int(_receive_from_phone(control)["pid"]) for each, control in controls.items()}
        if self._has_namespaces:
            links.configure(*links.port_commands(pids.items(), self.spec.config.rate))
        for control in controls.values():
            ipc.send(control, {"op": "link-ready"})
        for count, (each, control) in enumerate(controls.items(), start=1):
            _receive_from_phone(control)
            self.running[each.name] = RunningPhone(pids[each], control)
            ipc.send(control, {"op": "boot"})
            on_progress(count)
        if self._has_namespaces:
            links.flush_neighbors(phones)

    def power_off(self, name: str) -> None:
        os.waitpid(self._disconnect(name), 0)

    def _disconnect(self, name: str) -> int:
        """Close the control socket, which makes the phone's process 1 exit, and delete the link. Return its pid."""
        phone_process = self.running.pop(name)
        phone_process.control.close()
        if self._has_namespaces:
            links.delete_interface(self.spec.phone(name).switch_interface)
        return phone_process.pid

    def reap(self) -> None:
        """Reap the orphans of the whole lab. A phone whose process 1 was killed is powered off."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, each in self.running.items() if each.pid == pid]:
                self._disconnect(name)
                self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Without a PID namespace, the kernel does not kill a phone's processes together with its process 1."""
        inits = {each.pid for each in self.running.values()}
        for process in descendants(os.getpid()):
            if process.parent == os.getpid() and process.pid not in inits:
                for orphan in (process, *descendants(process.pid)):
                    kill(orphan.pid, signal.SIGKILL)

    def send_to_phone(self, name: str, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        self._require_power(name)
        ipc.send(self.running[name].control, message, files)

    def set_link(self, name: str, state: str) -> None:
        """Unplug the phone's network cable, or plug it in again."""
        self._require_namespaces("network links")
        self._require_power(name)
        links.configure([f"link set {self.spec.phone(name).switch_interface} {state}"])

    def is_handled_by_phone(self, name: str, quirk: str) -> bool:
        """Network quirks are applied from outside. A phone that is off applies its quirks when it starts."""
        return quirk not in network.KEYS and name in self.running

    def apply_network_quirks(self, name: str) -> None:
        """Apply the network settings of a running phone. A phone that is off applies them when it starts."""
        if name in self.running:
            quirks = network.NetworkQuirks(self.spec, self.spec.phone(name), self.lab.phone(name).scenario)
            quirks.apply(netns_pid=self.running[name].pid)

    def set_disk(self, name: str, *, full: bool) -> None:
        """Simulate a full disk by remounting it with a size limit equal to the space in use."""
        self._require_namespaces("separate disks")
        data = self.lab.phone(name).data
        usage = os.statvfs(data)
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        size = used if full else parse_size(self.spec.config.disk)
        syscalls.mount(None, data, None, syscalls.MS_REMOUNT | _DATA_MOUNT_FLAGS, f"size={size}")

    def _require_power(self, name: str) -> None:
        if name not in self.running:
            raise ClusterctlError(f"{name} is switched off", remedy=f"clusterctl lab power {name} on")

    def _require_namespaces(self, what: str) -> None:
        if not self._has_namespaces:
            remedy = "run the lab where namespaces are allowed: docs/guide/lab.md"
            raise ClusterctlError(f"phones in loopback mode have no {what}", remedy=remedy)

    def status(self) -> list[dict[str, Any]]:
        return [self._status(each) for each in self.spec.phones]

    def _status(self, each: VirtualPhone) -> dict[str, Any]:
        pid = self.running[each.name].pid if each.name in self.running else None
        return {"name": each.name, "up": pid is not None, "sshd": pid is not None and is_listening(pid, each.address)}


def _receive_from_phone(control: socket.socket) -> dict[str, Any]:
    try:
        message, _ = ipc.receive(control)
    except EOFError:
        raise OSError("a phone exited during startup") from None
    if error := message.get("error"):
        raise OSError(error)
    return message


def is_listening(pid: int, address: str) -> bool:
    """Whether port 8022 is open in the network namespace of process `pid`.

    Read from the TCP socket table: connecting without a login would cause sshd penalties.
    """
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    sockets = {f"{number:08X}:{SSH_PORT:04X}", f"00000000:{SSH_PORT:04X}"}
    try:
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False
    return any(row.split()[1] in sockets and row.split()[3] == _LISTEN for row in rows)
