"""mpi4py: the wheel that one phone built, on all phones like it."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.steps.step import Changes, Site
from orchestrator.provision.steps.wheel import install_wheel, is_installed
from phone_agent.contract.errors import ErrorCode


class Mpi4py:
    name = "mpi4py"

    def check(self, facts: Facts, want: Want) -> Changes:
        wheel = want.wheels.get(facts.abi or "")
        if is_installed(facts.mpi4py, want.mpi4py_version, wheel):
            return ()
        return (f"install mpi4py {want.mpi4py_version}",)

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        wheel = want.wheels.get(facts.abi or "")
        if wheel is None:
            raise PhoneError(
                f"there is no mpi4py for {facts.abi or 'a phone without Python'}",
                code=ErrorCode.PACKAGE_FAILED,
                phase="mpi4py",
            )
        install_wheel(site, wheel, self.name)
