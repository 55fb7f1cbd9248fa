"""The lab daemon: the single process that holds a lab together.

    python -m orchestrator.lab.daemon LAB_DIR REPORT_FD LOCK_FD NETWORK_FD

The daemon is process 1 of a PID namespace and owns the network and mount namespaces of the lab. Everything else in the
lab runs inside, so when the daemon ends, by `lab down` or by a crash, the kernel removes the rest.
Without namespaces (loopback mode) it is an ordinary process, and the phone processes exit when it does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from orchestrator import process_lock
from orchestrator.errors import ClusterctlError
from orchestrator.lab import ipc, syscalls
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.namespaces import create_lab_namespaces
from orchestrator.lab.processes import wake_on_child_exit
from orchestrator.lab.spec import LabSpec, Mode
from orchestrator.lab.virtual_rack import VirtualRack

_POLL_S = 2.0


@dataclass
class LabDaemon:
    rack: VirtualRack
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def serve(self, server: socket.socket) -> NoReturn:
        self.selector.register(server, selectors.EVENT_READ, self._accept)
        self.selector.register(wake_on_child_exit(), selectors.EVENT_READ, self._reap)
        self.rack.reap()
        while self.rack.lab.daemon_lock.exists():  # once the lab directory is deleted, no command can stop the daemon
            for key, _ in self.selector.select(_POLL_S):
                key.data(key.fileobj)
        sys.exit(0)

    def _reap(self, wake: socket.socket) -> None:
        wake.recv(4096)
        self.rack.reap()

    def _accept(self, server: socket.socket) -> None:
        """The request may take a while to come: a client that is stopped must not block the others."""
        client, _ = server.accept()
        self.selector.register(client, selectors.EVENT_READ, self._handle_client)

    def _handle_client(self, client: socket.socket) -> None:
        self.selector.unregister(client)
        files: list[int] = []
        with client:
            try:
                message, files = ipc.receive(client)
                self._dispatch(message, client, files)
            except ClusterctlError as error:
                _reply_error(client, error.message, error.remedy)
            except (OSError, ValueError, TypeError, EOFError) as error:
                traceback.print_exc()
                _reply_error(client, str(error), None)
            finally:
                _close(files)

    def _dispatch(self, message: dict[str, Any], client: socket.socket, files: list[int]) -> None:
        """Handle one request. Requests that a phone must answer are forwarded with the client's connection."""
        match message:
            case {"op": "socket", "kind": int(kind)}:
                with socket.socket(socket.AF_INET, socket.SocketKind(kind)) as created:
                    ipc.send(client, {}, [created.fileno()])
            case {"op": "exec", "phone": str(name), "argv": [*_]}:
                self.rack.send_to_phone(name, message, [client.fileno(), *files])
            case {"op": "terminal", "phone": str(name), "argv": [*_], "until": str(_)}:
                self.rack.send_to_phone(name, message, [client.fileno()])
            case {"op": "quirk", "phone": str(name), "key": str(key)} if self.rack.is_handled_by_phone(name, key):
                self.rack.send_to_phone(name, message, [client.fileno()])
            case {"op": "status"}:
                ipc.send(client, {"phones": self.rack.status()})
            case _:
                self._apply(message)
                ipc.send(client, {})

    def _apply(self, message: dict[str, Any]) -> None:
        match message:
            case {"op": "power", "phone": str(name), "state": "on"} if name not in self.rack.running:
                self.rack.power_on([self.rack.spec.phone(name)])
            case {"op": "power", "phone": str(name), "state": "off"} if name in self.rack.running:
                self.rack.power_off(name)
            case {"op": "power", "state": "on" | "off"}:
                pass  # already in that state
            case {"op": "sshd", "phone": str(name), "state": "up" | "down" | "reload" as state}:
                self.rack.send_to_phone(name, {"op": f"sshd-{state}"})
            case {"op": "link", "phone": str(name), "state": "up" | "down" as state}:
                self.rack.set_link(name, state)
            case {"op": "quirk", "phone": str(name), "key": str(_)}:
                self.rack.apply_network_quirks(name)
            case {"op": "disk", "phone": str(name), "state": "full" | "free" as state}:
                self.rack.set_disk(name, full=state == "full")
            case _:
                raise ValueError(f"unknown lab request: {message}")


def _reply_error(client: socket.socket, reason: str, remedy: str | None) -> None:
    with contextlib.suppress(OSError):  # the client may have disconnected
        ipc.send(client, {"error": reason, "remedy": remedy})


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _build(lab: LabLayout, spec: LabSpec, report: socket.socket) -> VirtualRack:
    """Build the lab. Reporting progress fails if `lab up` is gone, which aborts the build."""
    rack = VirtualRack(lab, spec)
    rack.build()
    rack.power_on(spec.phones, lambda count: ipc.send(report, {"phones": count}))
    return rack


def _run(lab: LabLayout, report: socket.socket, lock_fd: int, network_fd: int) -> None:
    spec = LabSpec.from_json(lab.spec.read_text())
    if spec.mode is Mode.LOOPBACK:
        syscalls.set_child_subreaper()
    else:
        create_lab_namespaces(spec.mode, spec.config.arch)
    process_lock.acquire(lab.daemon_lock)
    os.close(lock_fd)
    os.set_inheritable(network_fd, False)  # noqa: FBT003 (takes no keyword)
    rack = _build(lab, spec, report)
    server = ipc.serve(lab.root)
    ipc.send(report, {"ready": True})
    report.close()
    LabDaemon(rack).serve(server)


def main() -> None:
    report = socket.socket(fileno=int(sys.argv[2]))
    try:
        _run(LabLayout(Path(sys.argv[1])), report, int(sys.argv[3]), int(sys.argv[4]))
    except (OSError, ClusterctlError, ValueError) as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            ipc.send(report, {"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
