"""What is known of a phone: one script, one round trip, no Python needed there; everything else is computed from it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.errors import PhoneError
from phone_agent.contract.errors import ErrorCode

_SSH_VERSION: Final = re.compile(r"OpenSSH_([0-9]{1,4})\.([0-9]{1,4})")
_ARCHITECTURES: Final = frozenset({"aarch64", "arm", "x86_64", "i686"})  # Termux's; the name becomes part of a path
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,127}")
_VERSION: Final = re.compile(r"([0-9]{1,9}:)?[A-Za-z0-9][A-Za-z0-9.+~_-]{0,127}")
_STATUS: Final = re.compile(r"[a-z-]{1,32}")
_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INTEGER: Final = re.compile(r"[0-9]{1,18}")
_WHEEL_PATH: Final = re.compile(r"/\.clusterctl/wheels/([0-9a-f]{64})/")
_NOT_A_PHONE: Final = "is this a phone with Termux, and is its dpkg database whole? If not, set Termux up again"


@dataclass(frozen=True)
class FileFact:
    mode: str  # octal, such as 600
    sha256: str


@dataclass(frozen=True)
class Installed:
    version: str
    status: str  # dpkg's word: installed, half-configured, unpacked, …


@dataclass(frozen=True)
class Battery:
    percentage: float
    plugged: bool


@dataclass(frozen=True)
class Facts:
    epoch: float
    prefix: str
    home: str
    arch: str
    ssh_version: tuple[int, int] | None = None
    sshd_pid: int | None = None
    sshd: Mapping[str, str] = field(default_factory=dict)  # effective settings, keys in lower case
    disk_free_kb: int | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)  # address -> interface
    packages: Mapping[str, Installed] = field(default_factory=dict)
    files: Mapping[str, FileFact] = field(default_factory=dict)  # by the name ManagedFile gives them
    texts: Mapping[str, str] = field(default_factory=dict)
    wake_lock: str | None = None  # held, free; None: this phone has no such command
    python: tuple[str, str] | None = None  # cache tag and platform: cpython-314, android-24-arm64_v8a
    mpi4py: tuple[str, str] | None = None  # version, and the sha256 of the wheel it came from
    pyopencl: tuple[str, str] | None = None  # the same
    opencl_devices: int | None = None  # that the vendor's driver has; asked only where pyopencl is missing
    agent: tuple[str, str] | None = None  # release id, hash of its files
    battery: Battery | None = None

    def version(self, package: str) -> str | None:
        found = self.packages.get(package)
        return found.version if found and found.status == "installed" else None

    @property
    def abi(self) -> str | None:
        """What a compiled mpi4py depends on; None until Python and Open MPI are there."""
        openmpi = self.version("openmpi")
        if self.python is None or openmpi is None:
            return None
        return f"{self.python[0]}-{self.python[1]}-openmpi-{openmpi}"


def parse_facts(output: str, complaint: str = "") -> Facts:
    """Reads what the facts script printed. Lines of other origin (a greeting, a warning) are passed over.

    `complaint`: what it said on its error output, to be told where it said nothing else.
    """
    lines = [line.split("\t") for line in output.splitlines() if "\t" in line]
    keys = {line[0] for line in lines}
    if not {"begin", "end", "epoch", "arch"} <= keys:
        said = output.strip() or complaint.strip()
        raise PhoneError(
            "its description broke off: " + (said.splitlines() or ["nothing was printed"])[-1][:200],
            code=ErrorCode.BAD_ANSWER,
            phase="facts",
            remedy="clusterctl doctor tells what the phone lacks; if bash does not start on it, set Termux up again",
        )
    single = {key: values[0] for key, *values in lines if values}
    texts = {name: _decoded(text) for name, text in _pairs(lines, "text")}
    python = next(iter(_pairs(lines, "python")), None)
    modules = {name: next(iter(_pairs(lines, name)), None) for name in ("mpi4py", "pyopencl")}
    return Facts(
        epoch=_number(single["epoch"]),
        prefix=single.get("prefix", ""),
        home=single.get("home", ""),
        arch=_architecture(single["arch"]),
        ssh_version=_ssh_version(single.get("ssh", "")),
        sshd_pid=_integer(single.get("sshd_pid", "")),
        sshd=dict(_pairs(lines, "sshd_setting")),
        disk_free_kb=_integer(single.get("disk_kb", "")),
        addresses={address.partition("/")[0]: interface for interface, address in _pairs(lines, "address")},
        packages={name: _installed(name, *rest) for key, name, *rest in _wide(lines, "package", 4)},
        files={name: FileFact(*rest) for key, name, *rest in _wide(lines, "file", 4)},
        texts=texts,
        wake_lock=single.get("wake_lock"),
        python=(_sane(_TAG, python[0]), _sane(_TAG, python[1])) if python else None,
        mpi4py=_module(modules["mpi4py"]),
        pyopencl=_module(modules["pyopencl"]),
        opencl_devices=_integer(single.get("opencl_devices", "")),
        agent=next(iter(_pairs(lines, "agent")), None),
        battery=_battery(texts.get("battery", "")),
    )


def _wide(lines: list[list[str]], key: str, width: int) -> Iterator[list[str]]:
    return (line for line in lines if line[0] == key and len(line) == width)


def _pairs(lines: list[list[str]], key: str) -> Iterator[tuple[str, str]]:
    return ((line[1], line[2]) for line in _wide(lines, key, 3))


def _architecture(text: str) -> str:
    if not text:
        raise PhoneError(
            "Termux's package manager does not answer",
            code=ErrorCode.BROKEN_ENVIRONMENT,
            phase="facts",
            remedy="set Termux up again",
        )
    if text not in _ARCHITECTURES:
        raise PhoneError(
            f"its architecture is none of Termux's: {text[:40]!r}",
            code=ErrorCode.UNSUPPORTED_PHONE,
            phase="facts",
            remedy=_NOT_A_PHONE,
        )
    return text


def _installed(name: str, version: str, status: str) -> Installed:
    """dpkg knows no version of a package that was never wholly there."""
    known = version or status == "installed"
    _sane(_PACKAGE, name)
    return Installed(_sane(_VERSION, version) if known else "", _sane(_STATUS, status))


def _sane(pattern: re.Pattern[str], text: str) -> str:
    """What a phone says goes into comparisons, paths and reports for all phones: what dpkg would not say is refused."""
    if not pattern.fullmatch(text):
        raise PhoneError(
            f"it describes itself with {text[:40]!r}", code=ErrorCode.BAD_ANSWER, phase="facts", remedy=_NOT_A_PHONE
        )
    return text


def _number(text: str) -> float:
    try:
        return float(text.replace(",", "."))  # bash writes EPOCHREALTIME with the locale's decimal mark
    except ValueError:
        return 0.0


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def _ssh_version(text: str) -> tuple[int, int] | None:
    found = _SSH_VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else None


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode(
            "utf-8", "surrogateescape"
        )  # a file of others comes back as it was
    except ValueError:  # binascii.Error is one, and so is what is not ASCII
        return ""


def _wheel_sha256(origin: str) -> str:
    """From pip's direct_url.json: our wheels lie in a directory named by their sum. Empty: it is not one of ours."""
    found = _WHEEL_PATH.search(str(_json(origin).get("url", "")))
    return found[1] if found else ""


def _module(told: tuple[str, str] | None) -> tuple[str, str] | None:
    return (_sane(_VERSION, told[0]), _wheel_sha256(told[1])) if told else None


def _battery(text: str) -> Battery | None:
    document = _json(text)
    percentage, plugged = document.get("percentage"), document.get("plugged")
    if not isinstance(percentage, int | float) or not isinstance(plugged, str):
        return None
    return Battery(float(percentage), plugged != "UNPLUGGED")


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
