"""Install openssh from the cluster's package snapshot, which this computer serves through the cable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from orchestrator.bootstrap import termux
from orchestrator.bootstrap.adb import AdbError, Device
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from orchestrator.provision.failures import explain_failure
from phone_agent.contract.errors import ErrorCode

_PACKAGE: Final = "openssh"
_SECONDS: Final = 1800.0


class PackagesStep:
    name = "packages"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        del config
        if facts.termux and facts.termux.version(_PACKAGE):
            return ()
        install = termux.script_preview("packages", "clusterctl", "http://127.0.0.1:PORT/…", "SHA256", "", _PACKAGE)
        return (
            Action("forward this computer's package mirror to the phone", ("reverse", "tcp:PORT", "tcp:PORT")),
            Action(f"update Termux and install {_PACKAGE}", install),
        )

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        del config
        target.on_wait("installing packages")
        repository = target.repository(facts.termux or termux.collect_termux_facts(target.device))
        if repository.url is None:
            raise AdbError("no package mirror is running", code=ErrorCode.INTERNAL_ERROR)
        with _reverse_port(target.device, target.mirror_port):
            result = termux.run_script(
                target.device, "packages", repository.url, repository.sha256, "", _PACKAGE, timeout=_SECONDS
            )
        if not result.ok:
            cause = explain_failure(result.output)
            raise AdbError(cause.message, code=cause.code, remedy=cause.remedy)


@contextmanager
def _reverse_port(device: Device, port: int) -> Iterator[None]:
    """Forward a loopback port of the phone to the same port of this computer."""
    result = device.run("reverse", f"tcp:{port}", f"tcp:{port}")
    if not result.ok:
        raise AdbError(f"adb reverse failed: {result.summary}", remedy="unplug the phone and plug it in again")
    try:
        yield
    finally:
        device.adb.run("-s", device.name, "reverse", "--remove", f"tcp:{port}")
