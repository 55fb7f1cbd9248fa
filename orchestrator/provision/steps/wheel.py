"""mpi4py and pyopencl: install the wheels that phones of the same ABI built."""

from __future__ import annotations

from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.resources import read_script
from orchestrator.provision.termux_facts import TermuxFacts
from orchestrator.provision.wheels import Wheel
from phone_agent.contract.errors import ErrorCode

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


class Mpi4pyStep:
    name = "mpi4py"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        wheel = desired.wheels.get(facts.abi or "")
        if is_installed(facts.mpi4py, desired.mpi4py_version, wheel):
            return ()
        return (f"install mpi4py {desired.mpi4py_version}",)

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        wheel = desired.wheels.get(facts.abi or "")
        if wheel is None:
            raise PhoneError(
                f"no mpi4py wheel for {facts.abi or 'a phone without Python'}",
                code=ErrorCode.PACKAGE_FAILED,
                phase="mpi4py",
            )
        install_wheel(target, wheel, self.name)


class PyOpenClStep:
    """On phones with an OpenCL device. Optional: a phone without it computes on the CPU."""

    name = "pyopencl"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        if not (facts.pyopencl or facts.opencl_devices):
            return ()
        wheel = desired.gpu_wheels.get(facts.abi or "")
        if is_installed(facts.pyopencl, desired.pyopencl_version, wheel):
            return ()
        return (f"install pyopencl {desired.pyopencl_version}",)

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        wheel = desired.gpu_wheels.get(facts.abi or "")
        if wheel is None:
            raise PhoneError(
                "no phone of the same ABI could build pyopencl", code=ErrorCode.PACKAGE_FAILED, phase=self.name
            )
        install_wheel(target, wheel, self.name)
