"""SSH keys: this computer may log in to the phone, and phones to each other."""

from __future__ import annotations

from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.files import ManagedFile, changed_files, install_files, outside_block, with_block
from orchestrator.provision.resources import render_template
from orchestrator.provision.ssh_keys import key_body
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.dataset_delivery import LOGIN_CHECK, RECEIVE_COMMAND

PRIVATE_KEY = "~/.ssh/clusterctl_ed25519"
KNOWN_HOSTS = "~/.ssh/clusterctl_known_hosts"
AUTHORIZED_KEYS = "~/.ssh/authorized_keys"
SSH_CONFIG = "~/.ssh/config"
GATE = "~/.ssh/clusterctl_gate"

FILES = (PRIVATE_KEY, KNOWN_HOSTS, GATE, AUTHORIZED_KEYS, SSH_CONFIG)
_CHANGES = {
    PRIVATE_KEY: "install the key for ssh between phones",
    KNOWN_HOSTS: "install known_hosts",
    GATE: "install the script that limits what the phones' SSH key can do",
    AUTHORIZED_KEYS: "install authorized_keys",
    SSH_CONFIG: "configure ssh between phones",
}
# No terminal, no forwarding, no rc file; the forced command decides what may run.
_RESTRICTED = f'restrict,command="bash {GATE}"'


class KeysStep:
    name = "keys"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        return tuple(_CHANGES[file.path] for file in changed_files(required_files(facts, desired), facts))

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        install_files(target.connect(), changed_files(required_files(facts, desired), facts))


def required_files(facts: TermuxFacts, desired: DesiredState) -> tuple[ManagedFile, ...]:
    authorized = facts.texts.get("authorized_keys", "")
    config = facts.texts.get("ssh_config", "")
    return (
        ManagedFile(PRIVATE_KEY, desired.keys.phone_private),
        ManagedFile(KNOWN_HOSTS, desired.keys.known_hosts.encode()),
        # Before authorized_keys, which refers to it.
        ManagedFile(GATE, render_template("ssh-gate.sh", RECEIVE=RECEIVE_COMMAND, LOGIN_CHECK=LOGIN_CHECK).encode()),
        ManagedFile(AUTHORIZED_KEYS, _encoded(with_block(authorized, authorized_lines(authorized, desired)))),
        # At the top: ssh uses the first value of each setting.
        ManagedFile(SSH_CONFIG, _encoded(with_block(config, config_lines(desired), first=True))),
    )


def authorized_lines(text: str, desired: DesiredState) -> list[str]:
    """The key of the phones, valid from the wired network only; and this computer's, unless it is listed elsewhere."""
    lines = [f'from="{desired.peers}",{_RESTRICTED} {desired.keys.phone_public}']
    if key_body(desired.keys.login_public) not in outside_block(text):
        lines.append(desired.keys.login_public)
    return lines


def config_lines(desired: DesiredState) -> list[str]:
    addresses = " ".join(str(phone.address) for phone in desired.cluster)
    ports = {phone.ssh_port for phone in desired.cluster}
    return render_template("ssh_config", ADDRESSES=addresses, PORT=str(min(ports))).splitlines()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
