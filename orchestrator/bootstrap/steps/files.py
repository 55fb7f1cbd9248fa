"""Install authorized_keys, the sshd settings and the boot script, which provision manages as well."""

from __future__ import annotations

from orchestrator.bootstrap import termux
from orchestrator.bootstrap.steps.step import Action, AdbTarget, BootstrapConfig, PhoneFacts
from orchestrator.provision.files import ManagedFile, changed_files, with_block
from orchestrator.provision.ssh_keys import key_body
from orchestrator.provision.steps import boot, sshd
from orchestrator.provision.steps.keys import AUTHORIZED_KEYS
from orchestrator.provision.termux_facts import TermuxFacts


class FilesStep:
    name = "files"

    def plan(self, facts: PhoneFacts, config: BootstrapConfig) -> tuple[Action, ...]:
        return tuple(
            Action(
                f"write {file.path} (mode {file.mode:o}, sha256 {file.sha256})",
                termux.script_preview("install-files", "clusterctl", f"{file.mode:o}", file.path),
            )
            for file in _changed_files(facts.termux, config)
        )

    def apply(self, target: AdbTarget, facts: PhoneFacts, config: BootstrapConfig) -> None:
        termux.install_files(target.device, _changed_files(facts.termux, config))


def _changed_files(facts: TermuxFacts | None, config: BootstrapConfig) -> tuple[ManagedFile, ...]:
    """All files if there are no facts, as in a dry run on a phone without Termux."""
    known = facts or TermuxFacts(epoch=0.0, prefix="", home="", arch="")
    files = (*_authorized_keys(known, config), sshd.settings(known, config.peers), boot.boot_script())
    return changed_files(files, known)


def _authorized_keys(facts: TermuxFacts, config: BootstrapConfig) -> tuple[ManagedFile, ...]:
    text = facts.texts.get("authorized_keys", "")
    if key_body(config.login_public) in text:
        return ()
    content = with_block(text, [config.login_public]).encode("utf-8", "surrogateescape")
    return (ManagedFile(AUTHORIZED_KEYS, content),)
