"""A simulated Android, whose state is a directory of files that tests read and change.

The shell is real, so that quoting is tested; `pm`, `am`, `settings` and others are small scripts on that directory. The
programs of Termux are those of this computer, its apt is a fake that downloads the index through the cable, its sshd is
a real OpenSSH server. /data/data/com.termux is a temporary directory: the path is replaced in every command.
"""

from __future__ import annotations

import getpass
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.orchestrator.bootstrap import services
from tests.orchestrator.bootstrap.fake_adbd import Listener, Stream
from tests.orchestrator.fleet.servers import free_port, sshd

TERMUX_DATA = "/data/data/com.termux"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SCRIPTS = Path(__file__).parent / "phone"
TOOLS = (
    *("base64", "bash", "cat", "chmod", "cp", "df", "env", "find", "grep", "head", "id", "mkdir", "mktemp", "mv"),
    *("readlink", "rm", "sh", "sha256sum", "sleep", "sort", "ssh-keygen", "stat", "tar", "timeout", "touch", "xargs"),
)
_numbers = itertools.count(1)


@dataclass
class Android:
    """One phone. Its serial number is R58M<number>."""

    root: Path
    sdk: int = 29
    features: str = "shell_v2,cmd,stat_v2"
    unpack_polls: int = 0  # polls until Termux has unpacked its programs
    known_apks: dict[str, Path] = field(default_factory=dict)  # package -> APK that the package manager reports
    refusals: dict[str, str] = field(default_factory=dict)  # package -> error of its installation
    accepts: bool = True  # the authorization dialog
    keys: list[rsa.RSAPublicKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number = next(_numbers)
        self.serial = f"R58M{self.number:03}"
        self.loopback = f"127.88.0.{self.number}"
        self.ssh_port = free_port()
        self.asked = threading.Event()
        self.reboots = 0
        self._boot: subprocess.Popen[bytes] | None = None
        self._reverse = services.Reverse(self.loopback)
        self._write_system()
        self._write_termux()
        self.adbd = Listener(self)

    # For adb

    @property
    def banner(self) -> bytes:
        names = "ro.product.name=beyond2q;ro.product.model=SM-G975U;ro.product.device=beyond2q"
        return f"device::{names};features={self.features}".encode()

    def ask(self, key: rsa.RSAPublicKey, gone: threading.Event) -> bool:
        self.asked.set()
        while not self.accepts:
            if gone.wait(0.02):
                return False
        self.keys.append(key)
        return True

    def serve(self, service: str, stream: Stream) -> None:
        kind, _, rest = service.partition(":")
        if kind.startswith("shell,v2"):
            self._install_pushed(rest)
            services.shell(stream, ["/bin/sh", "-c", self._here(rest)], self._environment)
        elif kind == "exec":
            self._exec(stream, shlex.split(rest))
        elif kind == "sync":
            services.sync(stream, self.root)
        elif kind == "reverse":
            self._reverse.command(stream, rest)
        elif kind == "tcp":
            services.connect(stream, "127.0.0.1", self.ssh_port if rest == "8022" else 1)
        elif kind == "reboot":
            threading.Thread(target=self.reboot, daemon=True).start()
        else:
            raise AssertionError(f"unknown service {service}")

    # Actions of a person, and faults

    def reboot(self) -> None:
        self.reboots += 1
        self.power_off()
        self.put("boot_id", str(self.reboots))
        self.put("props/sys.boot_completed", "1")
        self._run_boot_script()
        self.adbd.plug_in()

    def power_off(self) -> None:
        self.adbd.unplug()
        self._reverse.close()
        if self._boot:
            os.killpg(self._boot.pid, signal.SIGKILL)
            self._boot.wait()
            self._boot = None

    def close(self) -> None:
        self.power_off()
        self.adbd.close()

    def install(self, apk: bytes) -> str:
        """What `pm install` prints."""
        package = next(name for name, path in self.known_apks.items() if path.read_bytes() == apk)
        if package in self.refusals:
            return f"Failure [{self.refusals[package]}]\n"
        directory = self.root / "apps" / package
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "base.apk").write_bytes(apk)
        (directory / "flags").write_text("[ DEBUGGABLE HAS_CODE ALLOW_CLEAR_USER_DATA ]\n")
        return "Success\n"

    # For assertions

    def get(self, name: str) -> str:
        return (self.root / name).read_text().strip()

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    @property
    def files(self) -> Path:
        return self.root / "data/data/com.termux/files"

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def reversed_ports(self) -> list[str]:
        return self._reverse.open_ports

    # Internals

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": str(self.root / "system/bin"), "A": str(self.root), "ANDROID_ROOT": "/system"}

    def _here(self, command: str) -> str:
        return command.replace(TERMUX_DATA, str(self.root) + TERMUX_DATA).replace(BOOT_ID, str(self.root / "boot_id"))

    def _exec(self, stream: Stream, words: list[str]) -> None:
        """`cmd package install … -S SIZE`: the APK follows on the stream."""
        assert words[:3] == ["cmd", "package", "install"], words
        size = int(words[words.index("-S") + 1])
        stream.write(self.install(stream.read(size)).encode())

    def _install_pushed(self, command: str) -> None:
        """An adb without streaming pushes the APK first; `pm install` reports the result."""
        words = shlex.split(command)
        if words[:2] == ["pm", "install"]:
            self.put("install-answer", self.install((self.root / words[-1].lstrip("/")).read_bytes()).strip())

    def _write_system(self) -> None:
        system = self.root / "system/bin"
        shutil.copytree(SCRIPTS / "system", system)
        _link_tools(system)
        if self.sdk < 29:
            (system / "device_config").unlink()
        props = {
            "ro.serialno": self.serial,
            "ro.build.version.sdk": str(self.sdk),
            "ro.build.version.release": {28: "9", 29: "10", 30: "11", 31: "12"}.get(self.sdk, str(self.sdk)),
            "ro.product.model": "SM-G975U",
            "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi",
            "sys.boot_completed": "1",
        }
        for name, value in props.items():
            self.put(f"props/{name}", value)
        for name, value in {"wifi_on": "1", "mobile_data": "1", "stay_on_while_plugged_in": "0"}.items():
            self.put(f"settings/{name}", value)
        self.put("boot_id", "0")
        self.put("user_state", "RUNNING_UNLOCKED")
        self.put("lock_secure", "false")
        self.put("free_kb", "20000000")
        self.put("unpack_polls", str(self.unpack_polls))
        self.put("whitelist", "system,com.android.shell,2000")

    def _write_termux(self) -> None:
        """Prepare the programs that Termux unpacks; the simulated `am` moves them into place."""
        usr = self.root / "bootstrap"
        shutil.copytree(SCRIPTS / "termux", usr / "bin")
        (usr / "tmp").mkdir()
        (usr / "lib").mkdir()
        _link_tools(usr / "bin")
        (usr / "bin/python3-of-the-test").symlink_to(sys.executable)
        config = f"""
Port {self.ssh_port}
ListenAddress 127.0.0.1
HostKey {self.files}/usr/etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile {self.files}/home/.ssh/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
        (usr / "sshd_config").write_text(config)
        self.put("bootstrap/sshd_program", sshd())
        self.put("bootstrap/loopback", self.loopback)
        self.put("bootstrap/user", getpass.getuser())

    def _run_boot_script(self) -> None:
        """Termux:Boot runs its scripts only if it was opened before."""
        script = self.files / "home/.termux/boot/00-clusterctl"
        if not (self.root / "apps/com.termux.boot/opened").exists() or not os.access(script, os.X_OK):
            return
        usr = self.files / "usr"
        environment = {"PREFIX": str(usr), "HOME": str(self.files / "home"), "PATH": f"{usr}/bin"}
        self._boot = subprocess.Popen([f"{usr}/bin/bash", script], env=environment, start_new_session=True)


def _link_tools(directory: Path) -> None:
    for tool in TOOLS:
        found = shutil.which(tool)
        if found and not (directory / tool).exists():
            (directory / tool).symlink_to(found)
