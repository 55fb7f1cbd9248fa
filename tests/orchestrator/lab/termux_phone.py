"""A simulated Termux without namespaces, for tests: its own $PREFIX, an unprivileged uid, a mirror over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from orchestrator.lab.termux import HostPrograms, build_mirror, write_bootstrap, write_setting, write_system

HOST = HostPrograms("/usr/bin", "/usr/sbin")
PHONE_UID = 10123
KEEP_CONFFILES = "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"


@dataclass(frozen=True)
class Phone:
    root: Path

    @property
    def prefix(self) -> Path:
        return self.root / "files" / "usr"

    @property
    def home(self) -> Path:
        return self.root / "files" / "home"

    @property
    def uid(self) -> int:
        return PHONE_UID if os.getuid() == 0 else os.getuid()

    def environment(self) -> dict[str, str]:
        return {
            "ANDROID_ROOT": str(self.root / "system"),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": str(self.prefix / "bin"),
            "PREFIX": str(self.prefix),
            "TMPDIR": str(self.prefix / "tmp"),
            "DEBIAN_FRONTEND": "noninteractive",
        }

    def run(self, script: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run a command like an SSH session of the phone: `login -c SCRIPT`."""
        return subprocess.run(
            [str(self.prefix / "bin/login"), "-c", script],
            env={**self.environment(), **changes},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **self.identity(),
        )

    def ok(self, script: str, **changes: str) -> str:
        done = self.run(script, **changes)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def identity(self) -> dict[str, Any]:
        if os.getuid() != 0:
            return {}
        return {"user": PHONE_UID, "group": PHONE_UID, "extra_groups": []}

    def set(self, key: str, value: str) -> None:
        write_setting(self.root / "system/scenario", self.root / "class", key, value)

    def use_mirror(self, url: str) -> None:
        (self.prefix / "etc/apt/sources.list").write_text(f"deb [trusted=yes] {url} stable main\n")


def bare_phone(root: Path) -> Phone:
    phone = Phone(root)
    write_bootstrap(root / "files", HOST, prefix=str(phone.prefix))
    write_system(root / "system", root / "class", root / "system/scenario", HOST)
    if os.getuid() == 0:
        for directory in (root / "files", root / "cache"):
            subprocess.run(["chown", "-R", f"{PHONE_UID}:{PHONE_UID}", str(directory)], check=True)
    return phone


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that the phone's uid can access, unlike those of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="clusterctl-termux-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def served_mirror(directory: Path) -> Iterator[str]:
    """Build and serve the mirror. Yields its URL."""
    mirror = build_mirror(directory, HOST, prefix=str(directory / "files/usr"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(mirror)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass
