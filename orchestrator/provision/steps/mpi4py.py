"""mpi4py: install the wheel that one phone of the same ABI built."""

from __future__ import annotations

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import DesiredState
from orchestrator.provision.steps.wheel import install_wheel, is_installed
from orchestrator.provision.target import Changes, SshTarget
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode


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
