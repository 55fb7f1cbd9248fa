"""Facts about the Termux installation of a phone, from one script without Python: provisioning/scripts/facts.sh."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.fact_parsing import Battery, FactLines, as_number, parse_battery, parse_ssh_version
from phone_agent.contract.errors import ErrorCode

_ARCHITECTURES: Final = frozenset({"aarch64", "arm", "x86_64", "i686"})  # Termux's; the name becomes part of a path
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,127}")
_VERSION: Final = re.compile(r"([0-9]{1,9}:)?[A-Za-z0-9][A-Za-z0-9.+~_-]{0,127}")
_STATUS: Final = re.compile(r"[a-z-]{1,32}")
_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WHEEL_PATH: Final = re.compile(r"/\.clusterctl/wheels/([0-9a-f]{64})/")
_REINSTALL_TERMUX: Final = "check that this is a phone with Termux and an intact dpkg database; else reinstall Termux"


@dataclass(frozen=True)
class FileFact:
    mode: str  # octal, such as 600
    sha256: str


@dataclass(frozen=True)
class PackageState:
    version: str
    status: str  # of dpkg: installed, half-configured, unpacked, …


@dataclass(frozen=True)
class TermuxFacts:
    epoch: float
    prefix: str
    home: str
    arch: str
    ssh_version: tuple[int, int] | None = None
    sshd_pid: int | None = None
    sshd: Mapping[str, str] = field(default_factory=dict)  # effective settings, keys in lower case
    disk_free_kb: int | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)  # address -> interface
    packages: Mapping[str, PackageState] = field(default_factory=dict)
    files: Mapping[str, FileFact] = field(default_factory=dict)  # by the path in ManagedFile
    texts: Mapping[str, str] = field(default_factory=dict)
    wake_lock: str | None = None  # held or free; None: the phone has no termux-wake-lock command
    python: tuple[str, str] | None = None  # cache tag and platform: cpython-314, android-24-arm64_v8a
    mpi4py: tuple[str, str] | None = None  # version, and sha256 of the wheel that it was installed from
    pyopencl: tuple[str, str] | None = None  # the same
    opencl_devices: int | None = None  # found by the vendor's driver; known only where pyopencl is missing
    agent: tuple[str, str] | None = None  # release id, hash of its files
    battery: Battery | None = None

    def version(self, package: str) -> str | None:
        found = self.packages.get(package)
        return found.version if found and found.status == "installed" else None

    @property
    def abi(self) -> str | None:
        """What a compiled mpi4py depends on; None until Python and Open MPI are installed."""
        openmpi = self.version("openmpi")
        if self.python is None or openmpi is None:
            return None
        return f"{self.python[0]}-{self.python[1]}-openmpi-{openmpi}"


def parse_termux_facts(stdout: str, stderr: str = "") -> TermuxFacts:
    """Parse the output of the facts script. `stderr` is quoted in the error if `stdout` is empty."""
    lines = FactLines.parse(stdout)
    if not all(key in lines for key in ("begin", "end", "epoch", "arch")):
        printed = stdout.strip() or stderr.strip()
        raise PhoneError(
            "the facts script did not finish: " + (printed.splitlines() or ["nothing was printed"])[-1][:200],
            code=ErrorCode.BAD_ANSWER,
            phase="facts",
            remedy="run clusterctl doctor to see what the phone lacks; if bash does not start there, reinstall Termux",
        )
    texts = {name: _decoded(text) for name, text in lines.pairs("text")}
    python = next(iter(lines.pairs("python")), None)
    return TermuxFacts(
        # bash writes EPOCHREALTIME with the decimal mark of the locale.
        epoch=as_number(lines.text("epoch").replace(",", ".")) or 0.0,
        prefix=lines.text("prefix"),
        home=lines.text("home"),
        arch=_architecture(lines.text("arch")),
        ssh_version=parse_ssh_version(lines.text("ssh")),
        sshd_pid=lines.integer("sshd_pid"),
        sshd=dict(lines.pairs("sshd_setting")),
        disk_free_kb=lines.integer("disk_kb"),
        addresses={address.partition("/")[0]: interface for interface, address in lines.pairs("address")},
        packages={name: _package_state(name, *state) for name, *state in lines.rows("package", 3)},
        files={name: FileFact(*fact) for name, *fact in lines.rows("file", 3)},
        texts=texts,
        wake_lock=lines.text("wake_lock") if "wake_lock" in lines else None,
        python=(_valid(_TAG, python[0]), _valid(_TAG, python[1])) if python else None,
        mpi4py=_module(lines, "mpi4py"),
        pyopencl=_module(lines, "pyopencl"),
        opencl_devices=lines.integer("opencl_devices"),
        agent=next(iter(lines.pairs("agent")), None),
        battery=parse_battery(texts.get("battery", "")),
    )


def _architecture(text: str) -> str:
    if not text:
        raise PhoneError(
            "dpkg does not work on the phone: it prints no architecture",
            code=ErrorCode.BROKEN_ENVIRONMENT,
            phase="facts",
            remedy="reinstall Termux",
        )
    if text not in _ARCHITECTURES:
        raise PhoneError(
            f"Termux does not support its architecture: {text[:40]!r}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="facts",
            remedy=_REINSTALL_TERMUX,
        )
    return text


def _package_state(name: str, version: str, status: str) -> PackageState:
    """A package that was never completely installed has no version."""
    _valid(_PACKAGE, name)
    has_version = version or status == "installed"
    return PackageState(_valid(_VERSION, version) if has_version else "", _valid(_STATUS, status))


def _valid(pattern: re.Pattern[str], text: str) -> str:
    """Refuse a value that dpkg or Python would not print: it goes into paths and into the reports of all phones."""
    if not pattern.fullmatch(text):
        raise PhoneError(
            f"the facts script printed an invalid value: {text[:40]!r}",
            code=ErrorCode.BAD_ANSWER,
            phase="facts",
            remedy=_REINSTALL_TERMUX,
        )
    return text


def _decoded(text: str) -> str:
    """Bytes that are not UTF-8 survive a round trip, because the files belong to the phone's owner."""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "surrogateescape")
    except ValueError:  # includes binascii.Error
        return ""


def _module(lines: FactLines, name: str) -> tuple[str, str] | None:
    """Version and wheel of a Python module that we install."""
    found = next(iter(lines.pairs(name)), None)
    return (_valid(_VERSION, found[0]), _wheel_sha256(found[1])) if found else None


def _wheel_sha256(direct_url: str) -> str:
    """Our wheels are installed from a directory named by their hash. Empty: it was installed from elsewhere.

    `direct_url`: the content of direct_url.json, which pip writes.
    """
    found = _WHEEL_PATH.search(direct_url)
    return found[1] if found else ""
