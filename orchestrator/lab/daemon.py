"""The one process a lab consists of, seen from outside.

    python -m orchestrator.lab.daemon LAB_DIR REPORT_FD GUARD_FD

It is process 1 of a PID namespace and owns the lab's network and mount namespaces. Everything else of the lab
lives inside, so ending this one process, by `lab down` or by a crash, makes the kernel remove all the rest.
Without namespaces (loopback) it is a plain process, and the phones' processes end when it does.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.errors import ClusterctlError
from orchestrator.lab import cables, lock, syscalls
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.namespaces import enter_lab
from orchestrator.lab.processes import wake_on_child_exit
from orchestrator.lab.spec import LabSpec, Mode
from orchestrator.lab.virtual_rack import Rack

_LOOK_AROUND_S = 2.0


@dataclass
class Anchor:
    rack: Rack

    def serve(self, server: socket.socket) -> NoReturn:
        selector = selectors.DefaultSelector()
        selector.register(server, selectors.EVENT_READ, self._answer)
        selector.register(wake_on_child_exit(), selectors.EVENT_READ, self._reap)
        self.rack.reap()
        while self.rack.lab.anchor_lock.exists():  # without its directory nobody could ever ask it to end
            for key, _ in selector.select(_LOOK_AROUND_S):
                key.data(key.fileobj)
        sys.exit(0)

    def _reap(self, wake: socket.socket) -> None:
        wake.recv(4096)
        self.rack.reap()

    def _answer(self, server: socket.socket) -> None:
        client, _ = server.accept()
        files: list[int] = []
        with client:
            try:
                message, files = cables.receive(client)
                self._do(message, client, files)
            except ClusterctlError as error:
                _refuse(client, error.message, error.remedy)
            except (OSError, ValueError, TypeError, EOFError) as error:
                traceback.print_exc()
                _refuse(client, str(error), None)
            finally:
                _close(files)

    def _do(self, message: dict[str, Any], client: socket.socket, files: list[int]) -> None:
        """Answers the client, unless it is the phone itself that has to: how a command ended, whether it is changed."""
        match message:
            case {"op": "socket", "kind": int(kind)}:
                with socket.socket(socket.AF_INET, socket.SocketKind(kind)) as made:
                    cables.send(client, {}, [made.fileno()])
            case {"op": "exec", "phone": str(name), "argv": [*_]}:
                self.rack.tell(name, message, [client.fileno(), *files])
            case {"op": "terminal", "phone": str(name), "argv": [*_], "until": str(_)}:
                self.rack.tell(name, message, [client.fileno()])
            case {"op": "habit", "phone": str(name), "key": str(key)} if self.rack.leaves_to_phone(name, key):
                self.rack.tell(name, message, [client.fileno()])
            case {"op": "status"}:
                cables.send(client, {"phones": self.rack.status()})
            case _:
                self._change(message)
                cables.send(client, {})

    def _change(self, message: dict[str, Any]) -> None:
        match message:
            case {"op": "power", "phone": str(name), "state": "on"} if name not in self.rack.running:
                self.rack.power_on([self.rack.spec.phone(name)])
            case {"op": "power", "phone": str(name), "state": "off"} if name in self.rack.running:
                self.rack.power_off(name)
            case {"op": "power", "state": "on" | "off"}:
                pass  # it is already
            case {"op": "sshd", "phone": str(name), "state": "up" | "down" | "reload" as state}:
                self.rack.tell(name, {"op": f"sshd-{state}"})
            case {"op": "link", "phone": str(name), "state": "up" | "down" as state}:
                self.rack.set_link(name, state)
            case {"op": "habit", "phone": str(name), "key": str(_)}:
                self.rack.rewire(name)
            case {"op": "disk", "phone": str(name), "state": "full" | "free" as state}:
                self.rack.set_disk(name, full=state == "full")
            case _:
                raise ValueError(f"the lab does not understand {message}")


def _refuse(client: socket.socket, reason: str, remedy: str | None) -> None:
    with contextlib.suppress(OSError):  # it may not wait for the answer any more
        cables.send(client, {"error": reason, "remedy": remedy})


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _build(lab: LabLayout, spec: LabSpec, report: socket.socket) -> Rack:
    """Each report fails if `lab up` is gone: a lab nobody waits for is not finished."""
    rack = Rack(lab, spec)
    rack.build()
    rack.power_on(spec.phones, lambda count: cables.send(report, {"phones": count}))
    return rack


def _run(lab: LabLayout, report: socket.socket, guard: int) -> None:
    spec = LabSpec.from_json(lab.spec.read_text())
    if spec.mode is Mode.LOOPBACK:
        syscalls.set_child_subreaper()
    else:
        enter_lab(spec.mode, spec.shape.arch)
    lock.hold(lab.anchor_lock)
    os.close(guard)
    rack = _build(lab, spec, report)
    server = cables.serve(lab.root)
    cables.send(report, {"ready": True})
    report.close()
    Anchor(rack).serve(server)


def main() -> None:
    report = socket.socket(fileno=int(sys.argv[2]))
    try:
        _run(LabLayout(Path(sys.argv[1])), report, int(sys.argv[3]))
    except (OSError, ClusterctlError, ValueError) as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            cables.send(report, {"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
