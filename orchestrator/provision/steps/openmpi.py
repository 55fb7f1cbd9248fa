"""Open MPI's settings for phones: the wired network only, no shared memory, no tree of ssh; and how it is started."""

from __future__ import annotations

from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.files import ManagedFile, changed_files, install_files
from orchestrator.provision.resources import filled, read_text
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract import layout

PARAMETERS = "~/.openmpi/mca-params.conf"
PMIX_PARAMETERS = "~/.pmix/mca-params.conf"
WIRED = f"~/{layout.WIRED}"
FILES = (PARAMETERS, PMIX_PARAMETERS, WIRED)


class OpenMpi:
    name = "openmpi"

    def check(self, facts: Facts, want: Want) -> Changes:
        return ("write Open MPI's parameters",) if changed_files(required_files(want), facts) else ()

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        install_files(site.connect(), changed_files(required_files(want), facts))


def required_files(want: Want) -> tuple[ManagedFile, ...]:
    text = filled("mca-params.conf", SUBNET=str(want.peers))
    return (
        ManagedFile(PARAMETERS, text.encode()),
        ManagedFile(PMIX_PARAMETERS, read_text("pmix-mca-params.conf").encode()),
        ManagedFile(WIRED, read_text("wired.sh").encode()),
    )
