"""Open MPI parameters: wired network only, no shared memory, no tree of ssh; and the wrapper that starts it."""

from __future__ import annotations

from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.files import ManagedFile, changed_files, install_files
from orchestrator.provision.resources import read_text, render_template
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract import layout

PARAMETERS = "~/.openmpi/mca-params.conf"
PMIX_PARAMETERS = "~/.pmix/mca-params.conf"
WIRED = f"~/{layout.WIRED}"
FILES = (PARAMETERS, PMIX_PARAMETERS, WIRED)


class OpenMpiStep:
    name = "openmpi"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        return ("write Open MPI parameters",) if changed_files(required_files(desired), facts) else ()

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        install_files(target.connect(), changed_files(required_files(desired), facts))


def required_files(desired: DesiredState) -> tuple[ManagedFile, ...]:
    text = render_template("mca-params.conf", SUBNET=str(desired.peers))
    return (
        ManagedFile(PARAMETERS, text.encode()),
        ManagedFile(PMIX_PARAMETERS, read_text("pmix-mca-params.conf").encode()),
        ManagedFile(WIRED, read_text("wired.sh").encode()),
    )
