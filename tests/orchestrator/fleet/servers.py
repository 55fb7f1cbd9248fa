"""Real OpenSSH servers on loopback addresses, each with its own host key and its own $HOME, as phones have."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from orchestrator.fleet.keys import ensure_keypair
from orchestrator.inventory.model import Phone

# As on a phone: every command is `bash -c COMMAND`, started in a home of the phone's own.
LOGIN = """#!/bin/bash
cd "$HOME" && exec /bin/bash -c "$SSH_ORIGINAL_COMMAND"
"""

CONFIG = """
ListenAddress {phone.address}:{phone.ssh_port}
HostKey {root}/host_key
AuthorizedKeysFile {authorized}
ForceCommand exec {root}/login
SetEnv HOME={root}/home
PidFile none
LogLevel VERBOSE
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""


@dataclass
class Server:
    phone: Phone
    root: Path
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def log(self) -> str:
        return (self.root / "sshd.log").read_text()

    def await_port(self) -> None:
        for _ in range(400):
            assert self.process.poll() is None, self.log
            if "Server listening" in self.log:
                return
            time.sleep(0.025)
        raise AssertionError(f"no sshd at {self.phone}: {self.log}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def start_server(root: Path, phone: Phone, authorized: Path, host_key: Path | None = None) -> Server:
    prepare(root, phone, authorized, host_key)
    with (root / "sshd.log").open("wb") as log:
        process = subprocess.Popen([sshd(), "-D", "-e", "-f", str(root / "sshd_config")], stderr=log)
    return Server(phone, root, process)


def prepare(root: Path, phone: Phone, authorized: Path, host_key: Path | None = None) -> None:
    (root / "home").mkdir(parents=True)
    if host_key:
        shutil.copy(host_key, root / "host_key")
    else:
        ensure_keypair(root / "host_key", phone.name)
    (root / "login").write_text(LOGIN)
    (root / "login").chmod(0o755)
    (root / "sshd_config").write_text(CONFIG.format(phone=phone, root=root, authorized=authorized))


def sshd() -> str:
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where a root sshd puts its unprivileged half
    found = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    assert found is not None, "openssh-server is needed"
    return found


def loopback_phone(number: int, port: int, switch: int = 1) -> Phone:
    return Phone(
        name=f"p{switch}-{number:02}",
        switch=f"sw{switch}",
        port=number,
        address=IPv4Address(f"127.78.{switch}.{number}"),
        ssh_port=port,
        user=getpass.getuser(),
    )


def free_port() -> int:
    with socket.create_server(("0.0.0.0", 0)) as probe:  # noqa: S104  (free on every loopback address)
        return int(probe.getsockname()[1])
