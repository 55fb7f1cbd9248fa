"""Who may log in, how sshd behaves, and what starts it: the files that provision keeps as well."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.bootstrap import termux
from orchestrator.bootstrap.steps.step import Action, Known, Site, Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.files import ManagedFile, changed_files, with_block
from orchestrator.provision.steps import boot, sshd
from orchestrator.provision.steps.keys import AUTHORIZED_KEYS, key_body


class Files:
    name = "files"

    def plan(self, known: Known, want: Want) -> tuple[Action, ...]:
        return tuple(
            Action(
                f"write {file.path} (mode {file.mode:o}, sha256 {file.sha256})",
                termux.shown("install-files", "clusterctl", f"{file.mode:o}", file.path),
            )
            for file in _missing(known.facts, want)
        )

    def apply(self, site: Site, known: Known, actions: Sequence[Action]) -> None:
        del actions
        termux.install(site.device, _missing(known.facts, site.want))


def _missing(facts: Facts | None, want: Want) -> tuple[ManagedFile, ...]:
    """Without facts, as in a dry run on a phone without Termux: all of them."""
    known = facts or Facts(epoch=0.0, prefix="", home="", arch="")
    files = (*_authorized(known, want), sshd.settings(known, want.peers), boot.boot_script())
    return changed_files(files, known)


def _authorized(facts: Facts, want: Want) -> tuple[ManagedFile, ...]:
    text = facts.texts.get("authorized_keys", "")
    if key_body(want.host_public) in text:
        return ()
    content = with_block(text, [want.host_public]).encode("utf-8", "surrogateescape")
    return (ManagedFile(AUTHORIZED_KEYS, content),)
