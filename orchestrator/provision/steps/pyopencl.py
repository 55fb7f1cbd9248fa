"""pyopencl, on phones with an OpenCL device: install the wheel that one phone of the same ABI built.

Optional: a phone without it computes on the CPU.
"""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import DesiredState
from orchestrator.provision.steps.wheel import install_wheel, is_installed
from orchestrator.provision.target import Changes, SshTarget
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode


class PyOpenClStep:
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
