"""sshd settings: keys only, many connections at once, no forwarding."""

from __future__ import annotations

import time
from ipaddress import IPv4Network
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Changes, DesiredState, SshTarget
from orchestrator.provision.files import ManagedFile
from orchestrator.provision.resources import read_script, read_text, render_template
from orchestrator.provision.ssh_keys import key_body
from orchestrator.provision.termux_facts import TermuxFacts
from phone_agent.contract.errors import ErrorCode

DROP_IN: Final = "$PREFIX/etc/ssh/sshd_config.d/50-clusterctl.conf"
_PENALTIES_SINCE: Final = (9, 8)
_ATTEMPTS: Final = 5

_ERRORS: Final = {
    3: ("sshd rejects the settings", "on the phone, in Termux: sshd -t"),
    4: (
        "the settings have no effect",
        "on the phone: $PREFIX/etc/ssh/sshd_config must include sshd_config.d/*.conf before it sets anything itself",
    ),
    5: (
        "this computer's key is not in authorized_keys, so turning passwords off would lock it out",
        "add the key to ~/.ssh/authorized_keys on the phone",
    ),
}


class SshdStep:
    name = "sshd"

    def plan(self, facts: TermuxFacts, desired: DesiredState) -> Changes:
        file = drop_in(facts, desired)
        if file.differs(facts):
            return ("configure sshd: keys only, no forwarding",)
        overridden = overridden_settings(file, facts)
        return (f"configure sshd: {', '.join(overridden)} overridden elsewhere",) if overridden else ()

    def apply(self, target: SshTarget, facts: TermuxFacts, desired: DesiredState) -> None:
        if facts.sshd_pid is None:
            raise PhoneError(
                "cannot find the process id of sshd",
                code=ErrorCode.NEEDS_A_PERSON,
                phase="sshd",
                remedy="restart Termux on the phone",
            )
        pid = str(facts.sshd_pid)
        command = ["bash", "-c", read_script("sshd-activate"), "clusterctl", pid, key_body(desired.keys.login_public)]
        done = target.connect().run(command, stdin=drop_in(facts, desired).content)
        if not done.ok:
            meaning, remedy = _ERRORS.get(done.rc, ("sshd could not be configured", None))
            raise PhoneError(
                f"{meaning}: {done.stderr.strip()[-300:]}", code=ErrorCode.COMMAND_FAILED, phase="sshd", remedy=remedy
            )
        _verify_login(target, pid)


def drop_in(facts: TermuxFacts, desired: DesiredState) -> ManagedFile:
    return settings(facts, desired.peers)


def settings(facts: TermuxFacts, peers: IPv4Network) -> ManagedFile:
    text = read_text("sshd_config")
    if facts.ssh_version is not None and facts.ssh_version >= _PENALTIES_SINCE:
        text += render_template("sshd_config-9.8", PEERS=str(peers))
    return ManagedFile(DROP_IN, text.encode())


def overridden_settings(file: ManagedFile, facts: TermuxFacts) -> list[str]:
    """Settings whose effective value is not ours. Settings that sshd does not report count as ours."""
    words = [line.split() for line in file.content.decode().splitlines() if line and not line.startswith("#")]
    return [key for key, value in words if facts.sshd.get(key.lower(), value).lower() != value.lower()]


def _verify_login(target: SshTarget, pid: str) -> None:
    """Log in over a new connection. If that fails, restore the old settings over the open connection."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return target.verify_new_login()
        except PhoneError as error:
            if attempt == _ATTEMPTS:
                target.connect().script(read_script("sshd-restore"), pid)
                raise PhoneError(
                    f"cannot log in with the new sshd settings, restored the old ones: {error.message}",
                    code=error.code,
                    phase="sshd",
                    remedy=error.remedy,
                ) from error
            time.sleep(attempt * 0.5)  # sshd takes a moment to listen again after a reload
    return None
