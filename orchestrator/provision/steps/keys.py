"""Who may log in: this computer, and the phones among each other."""

from __future__ import annotations

from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.files import ManagedFile, changed_files, install_files, outside_block, with_block
from orchestrator.provision.resources import filled
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract.dataset_delivery import RECEIVE_COMMAND

PRIVATE_KEY = "~/.ssh/clusterctl_ed25519"
KNOWN_HOSTS = "~/.ssh/clusterctl_known_hosts"
AUTHORIZED_KEYS = "~/.ssh/authorized_keys"
SSH_CONFIG = "~/.ssh/config"
GATE = "~/.ssh/clusterctl_gate"

FILES = (PRIVATE_KEY, KNOWN_HOSTS, GATE, AUTHORIZED_KEYS, SSH_CONFIG)
_WHAT = {
    PRIVATE_KEY: "the key that phones log in to each other with",
    KNOWN_HOSTS: "the phones' host keys",
    GATE: "what that key may start",
    AUTHORIZED_KEYS: "who may log in",
    SSH_CONFIG: "how phones reach each other",
}
# No terminal, no forwarding of any kind, no rc file; and whatever is asked for, the gate decides.
_RESTRICTED = f'restrict,command="bash {GATE}"'


class Keys:
    name = "keys"

    def check(self, facts: Facts, want: Want) -> Changes:
        return tuple(f"write {_WHAT[file.path]}" for file in changed_files(required_files(facts, want), facts))

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        install_files(site.connect(), changed_files(required_files(facts, want), facts))


def required_files(facts: Facts, want: Want) -> tuple[ManagedFile, ...]:
    authorized = facts.texts.get("authorized_keys", "")
    config = facts.texts.get("ssh_config", "")
    return (
        ManagedFile(PRIVATE_KEY, want.keys.phone_private),
        ManagedFile(KNOWN_HOSTS, want.keys.known_hosts.encode()),
        ManagedFile(GATE, filled("ssh-gate.sh", RECEIVE=RECEIVE_COMMAND).encode()),  # before anybody is sent there
        ManagedFile(AUTHORIZED_KEYS, _encoded(with_block(authorized, authorized_lines(authorized, want)))),
        # First: ssh takes the first value it finds for each setting.
        ManagedFile(SSH_CONFIG, _encoded(with_block(config, config_lines(want), first=True))),
    )


def authorized_lines(text: str, want: Want) -> list[str]:
    """The phones' key, from the wired network only; and this computer's, unless its owner listed it already."""
    lines = [f'from="{want.peers}",{_RESTRICTED} {want.keys.phone_public}']
    if key_body(want.keys.host_public) not in outside_block(text):
        lines.append(want.keys.host_public)
    return lines


def config_lines(want: Want) -> list[str]:
    addresses = " ".join(str(phone.address) for phone in want.cluster)
    ports = {phone.ssh_port for phone in want.cluster}
    return filled("ssh_config", ADDRESSES=addresses, PORT=str(min(ports))).splitlines()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def key_body(public: str) -> str:
    """`ssh-ed25519 AAAA…` without the comment."""
    return " ".join(public.split()[:2])
