"""openssh, from the cluster's own package snapshot: served by this computer, through the cable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from orchestrator.bootstrap import termux
from orchestrator.bootstrap.adb import AdbError, Device
from orchestrator.bootstrap.steps.step import Action, Known, Site, Want
from orchestrator.provision.failures import explain
from phone_agent.contract.errors import ErrorCode

_PACKAGE: Final = "openssh"
_SECONDS: Final = 1800.0


class Packages:
    name = "packages"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        del want
        if known.facts and known.facts.version(_PACKAGE):
            return ()
        install = termux.shown("packages", "clusterctl", "http://127.0.0.1:PORT/…", "SHA256", "", _PACKAGE)
        return (
            Action("lend it this computer's package mirror", ("reverse", "tcp:PORT", "tcp:PORT")),
            Action(f"bring Termux up to date and install {_PACKAGE}", install),
        )

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        del actions
        facts = known.facts or termux.facts(site.device)
        site.waiting("packages")
        repository = site.repository(facts)
        if repository.url is None:
            raise AdbError("no package mirror is running", code=ErrorCode.INTERNAL_ERROR)
        with _reversed(site.device, site.mirror_port):
            done = termux.run(
                site.device, "packages", repository.url, repository.sha256, "", _PACKAGE, timeout=_SECONDS
            )
        if not done.ok:
            cause = explain(done.stdout + done.stderr)
            raise AdbError(cause.message, code=cause.code, remedy=cause.remedy)


@contextmanager
def _reversed(device: Device, port: int) -> Iterator[None]:
    """The phone's own loopback port leads to ours."""
    done = device.run("reverse", f"tcp:{port}", f"tcp:{port}")
    if not done.ok:
        raise AdbError(f"adb reverse is refused: {done.said}", remedy="plug the phone out and in again")
    try:
        yield
    finally:
        device.adb.run("-s", device.name, "reverse", "--remove", f"tcp:{port}")
