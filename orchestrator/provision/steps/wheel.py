"""Wheels on phones: is it installed, and install it."""

from __future__ import annotations

from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.resources import read_script
from orchestrator.provision.target import SshTarget
from orchestrator.provision.wheels import Wheel

_LIMIT: Final = 300.0


def is_installed(found: tuple[str, str] | None, version: str, wheel: Wheel | None) -> bool:
    """`found`: the installed version, and the sha256 of its wheel (empty if the wheel is not ours)."""
    installed, sha256 = found or ("", "")
    return installed == version and bool(sha256) and (wheel is None or wheel.sha256 == sha256)


def install_wheel(target: SshTarget, wheel: Wheel, name: str) -> None:
    command = ["bash", "-c", read_script("install-wheel"), "clusterctl", wheel.path.name, wheel.sha256]
    done = target.connect().run(command, stdin=wheel.path.read_bytes(), timeout=_LIMIT)
    if not done.ok:
        cause = explain_failure(done.stderr)
        raise PhoneError(f"cannot install {name}: {cause.message}", code=cause.code, phase=name, remedy=cause.remedy)
