"""pyopencl, on phones whose driver has a device: the wheel that one phone built, on all phones like it.

A phone that does not get it computes on its processor.
"""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.steps.step import Changes, Site
from orchestrator.provision.steps.wheel import install_wheel, is_installed
from phone_agent.contract.errors import ErrorCode


class PyOpenCl:
    name = "pyopencl"

    def check(self, facts: Facts, want: Want) -> Changes:
        if not (facts.pyopencl or facts.opencl_devices):
            return ()
        wheel = want.gpu_wheels.get(facts.abi or "")
        if is_installed(facts.pyopencl, want.pyopencl_version, wheel):
            return ()
        return (f"install pyopencl {want.pyopencl_version}",)

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        wheel = want.gpu_wheels.get(facts.abi or "")
        if wheel is None:
            raise PhoneError(
                "no phone of its kind could build pyopencl", code=ErrorCode.PACKAGE_FAILED, phase=self.name
            )
        install_wheel(site, wheel, self.name)
