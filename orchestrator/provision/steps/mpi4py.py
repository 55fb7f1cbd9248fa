"""mpi4py: the wheel that one phone built, on all phones like it."""

from __future__ import annotations

from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.facts import Facts
from orchestrator.provision.failures import explain
from orchestrator.provision.resources import script
from orchestrator.provision.steps.step import Changes, Site
from orchestrator.provision.want import Want

_LIMIT: Final = 300.0


class Mpi4py:
    name = "mpi4py"

    def check(self, facts: Facts, want: Want) -> Changes:
        version, origin = facts.mpi4py or ("", "")
        wheel = want.wheels.get(facts.abi or "")
        if version == want.mpi4py_version and origin and (wheel is None or wheel.sha256 == origin):
            return ()
        return (f"install mpi4py {want.mpi4py_version}",)

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        wheel = want.wheels.get(facts.abi or "")
        if wheel is None:
            raise PhoneError(f"there is no mpi4py for {facts.abi or 'a phone without Python'}", phase="mpi4py")
        command = ["bash", "-c", script("install-wheel"), "clusterctl", wheel.path.name, wheel.sha256]
        done = site.connect().run(command, stdin=wheel.path.read_bytes(), timeout=_LIMIT)
        if not done.ok:
            cause, remedy = explain(done.stderr)
            raise PhoneError(f"cannot install mpi4py: {cause}", phase="mpi4py", remedy=remedy)
