"""sshd: keys only, patient with many connections at once, no forwarding."""

from __future__ import annotations

import time
from ipaddress import IPv4Network
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.files import ManagedFile
from orchestrator.provision.resources import filled, read_text, script
from orchestrator.provision.steps.keys import key_body
from orchestrator.provision.steps.step import Changes, Site
from phone_agent.contract.errors import ErrorCode

DROP_IN: Final = "$PREFIX/etc/ssh/sshd_config.d/50-clusterctl.conf"
_PENALTIES_SINCE: Final = (9, 8)
_ATTEMPTS: Final = 5

_REFUSALS: Final = {
    3: ("sshd does not accept the settings", "on the phone, in Termux: sshd -t"),
    4: (
        "sshd takes the settings without effect",
        "on the phone: $PREFIX/etc/ssh/sshd_config must include sshd_config.d/*.conf before it sets anything itself",
    ),
    5: (
        "this computer's key is not in authorized_keys: with passwords off nobody could log in any more",
        "put the key into ~/.ssh/authorized_keys on the phone",
    ),
}


class Sshd:
    name = "sshd"

    def check(self, facts: Facts, want: Want) -> Changes:
        file = drop_in(facts, want)
        if file.differs(facts):
            return ("set sshd up: keys only, no forwarding",)
        overruled = overruled_settings(file, facts)
        return (f"set sshd up: {', '.join(overruled)} has another value",) if overruled else ()

    def apply(self, site: Site, facts: Facts, want: Want) -> None:
        if facts.sshd_pid is None:
            raise PhoneError(
                "cannot tell which process is sshd",
                code=ErrorCode.NEEDS_A_PERSON,
                phase="sshd",
                remedy="restart Termux on the phone",
            )
        pid = str(facts.sshd_pid)
        command = ["bash", "-c", script("sshd-activate"), "clusterctl", pid, key_body(want.keys.host_public)]
        done = site.connect().run(command, stdin=drop_in(facts, want).content)
        if not done.ok:
            meaning, remedy = _REFUSALS.get(done.rc, ("sshd could not be set up", None))
            raise PhoneError(
                f"{meaning}: {done.stderr.strip()[-300:]}", code=ErrorCode.COMMAND_FAILED, phase="sshd", remedy=remedy
            )
        _prove_login(site, pid)


def drop_in(facts: Facts, want: Want) -> ManagedFile:
    return settings(facts, want.peers)


def settings(facts: Facts, peers: IPv4Network) -> ManagedFile:
    text = read_text("sshd_config")
    if facts.ssh_version is not None and facts.ssh_version >= _PENALTIES_SINCE:
        text += filled("sshd_config-9.8", PEERS=str(peers))
    return ManagedFile(DROP_IN, text.encode())


def overruled_settings(file: ManagedFile, facts: Facts) -> list[str]:
    """Settings whose effective value is not ours; what sshd did not tell is not held against it."""
    words = [line.split() for line in file.content.decode().splitlines() if line and not line.startswith("#")]
    return [key for key, value in words if facts.sshd.get(key.lower(), value).lower() != value.lower()]


def _prove_login(site: Site, pid: str) -> None:
    """A new connection with the new settings; if there is none, the old ones come back over the open connection."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return site.log_in_afresh()
        except PhoneError as error:
            if attempt == _ATTEMPTS:
                site.connect().script(script("sshd-restore"), pid)
                raise PhoneError(
                    f"no new login with the new sshd settings, the old ones are back: {error.message}",
                    code=error.code,
                    phase="sshd",
                    remedy=error.remedy,
                ) from error
            time.sleep(attempt * 0.5)  # sshd opens its port again a moment after it read its settings
    return None
