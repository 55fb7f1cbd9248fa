"""What is where in a lab directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab.environment import TERMUX_FILES


@dataclass(frozen=True)
class LabLayout:
    """Everything here goes with the lab. `data` directories are mount points: they look empty from outside."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "lab.json"

    @property
    def log(self) -> Path:
        return self.root / "anchor.log"

    @property
    def anchor_lock(self) -> Path:
        """Held by the anchor: the lab runs."""
        return self.root / "anchor.lock"

    @property
    def phones_lock(self) -> Path:
        """Shared by phones that have no PID namespace, and so may outlive the anchor by a moment."""
        return self.root / "phones.lock"

    @property
    def userland(self) -> Path:
        """A link to the root of the tree that phones borrow programs from: this computer's, or another one."""
        return self.root / "userland"

    @property
    def upstream(self) -> Path:
        """The stand-in for Termux's package repository."""
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
        """Where each phone, in a mount namespace of its own, puts its root together."""
        return self.root / "root"

    @property
    def phones(self) -> Path:
        """May be a link to a place that the phones' users can reach."""
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
        """Termux's `files` and `cache`."""
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
        """What the phone's own processes print when nobody reads it: sshd, boot scripts."""
        return self.root / "console.log"
