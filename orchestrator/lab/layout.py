"""Paths in a lab directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.environment import TERMUX_FILES


@dataclass(frozen=True)
class LabLayout:
    """All of it is deleted with the lab. `data` directories are mount points and look empty from outside the lab."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "lab.json"

    @property
    def log(self) -> Path:
        return self.root / "daemon.log"

    @property
    def daemon_lock(self) -> Path:
        """Held by the daemon while the lab is running."""
        return self.root / "daemon.lock"

    @property
    def phones_lock(self) -> Path:
        """Shared by phones without a PID namespace, which may outlive the daemon for a moment."""
        return self.root / "phones.lock"

    @property
    def userland(self) -> Path:
        """A symlink to the root directory that provides the phones' programs: `/`, or an arm64 userland."""
        return self.root / "userland"

    @property
    def upstream(self) -> Path:
        """The lab's replacement for the Termux package repository."""
        return self.root / "upstream"

    @property
    def termux(self) -> Path:
        """A bare Termux, copied to each phone when it starts for the first time."""
        return self.root / "template" / "com.termux"

    @property
    def system(self) -> Path:
        return self.root / "template" / "system"

    @property
    def sys_class(self) -> Path:
        return self.root / "template" / "sys_class"

    @property
    def staging(self) -> Path:
        """Mount point where each phone, in its own mount namespace, assembles its root file system."""
        return self.root / "root"

    @property
    def phones(self) -> Path:
        """May be a symlink to a directory that the phones' users can access."""
        return self.root / "phones"

    def phone(self, name: str) -> PhoneLayout:
        return PhoneLayout(self.phones.resolve() / name)


@dataclass(frozen=True)
class PhoneLayout:
    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def termux(self) -> Path:
        """The parent directory of Termux's `files` and `cache`."""
        return (self.root / TERMUX_FILES).parent

    @property
    def system(self) -> Path:
        return self.root / "system"

    @property
    def scenario(self) -> Path:
        return self.system / "scenario"

    @property
    def sys_class(self) -> Path:
        return self.root / "sys_class"

    @property
    def log(self) -> Path:
        """Output of background processes on the phone: sshd and boot scripts."""
        return self.root / "console.log"
