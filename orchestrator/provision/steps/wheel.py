"""A wheel on a phone: whether it is there, and putting it there."""

from __future__ import annotations

from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.failures import explain
from orchestrator.provision.resources import script
from orchestrator.provision.steps.step import Site
from orchestrator.provision.wheels import Wheel

_LIMIT: Final = 300.0


def is_installed(found: tuple[str, str] | None, version: str, wheel: Wheel | None) -> bool:
    """`found`: the version that is there, and the sum of the wheel it came from."""
    here, origin = found or ("", "")
    return here == version and bool(origin) and (wheel is None or wheel.sha256 == origin)


def install_wheel(site: Site, wheel: Wheel, name: str) -> None:
    command = ["bash", "-c", script("install-wheel"), "clusterctl", wheel.path.name, wheel.sha256]
    done = site.connect().run(command, stdin=wheel.path.read_bytes(), timeout=_LIMIT)
    if not done.ok:
        cause = explain(done.stderr)
        raise PhoneError(f"cannot install {name}: {cause.message}", code=cause.code, phase=name, remedy=cause.remedy)
