"""Inside Termux, by run-as: what a debuggable app lets adb do in its name."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError, Device, Done, shell_arguments
from orchestrator.bootstrap.apk.folder import TERMUX
from orchestrator.fleet.sanitize import last_lines
from orchestrator.inventory import grammar
from orchestrator.provision.facts import Facts, parse_facts
from orchestrator.provision.files import ManagedFile, archive
from orchestrator.provision.resources import script
from orchestrator.provision.steps import boot, keys, sshd
from phone_agent.contract.errors import ErrorCode

FILES: Final = (keys.AUTHORIZED_KEYS, sshd.DROP_IN, boot.BOOT_SCRIPT)
_HOST_KEY: Final = "etc/ssh/ssh_host_ed25519_key.pub"
_SECONDS: Final = 60.0


def words(*command: str) -> tuple[str, ...]:
    """What `adb shell` has to run for a command in Termux."""
    return ("run-as", TERMUX, "sh", "-c", script("termux"), "termux", *command)


def bash(name: str, *arguments: str) -> tuple[str, ...]:
    """The same for one of our scripts."""
    return words("bash", "-c", script(name), "clusterctl", *arguments)


def shown(name: str, *arguments: str) -> tuple[str, ...]:
    """adb's arguments for one of our scripts, as a plan shows them: scripts by their names."""
    texts = [f"«provisioning/scripts/{each}.sh»" for each in ("termux", name)]
    return shell_arguments("run-as", TERMUX, "sh", "-c", texts[0], "termux", "bash", "-c", texts[1], *arguments)


def facts(device: Device) -> Facts:
    return parse_facts(device.shell(*bash("facts", *FILES), timeout=_SECONDS).stdout)


def install(device: Device, files: tuple[ManagedFile, ...]) -> None:
    arguments = [word for file in files for word in (f"{file.mode:o}", file.path)]
    done = device.shell(*bash("install-files", *arguments), stdin=archive(files), timeout=_SECONDS)
    if not done.ok:
        raise AdbError(
            f"cannot write {', '.join(file.path for file in files)}: {done.said}", code=ErrorCode.COMMAND_FAILED
        )


def run(device: Device, name: str, *arguments: str, timeout: float) -> Done:
    return device.shell(*bash(name, *arguments), timeout=timeout)


def host_key(device: Device) -> str:
    """`ssh-ed25519 AAAA…`, over the cable: nobody can stand in between."""
    done = device.shell(*words("bash", "-c", f'cat "$PREFIX/{_HOST_KEY}"'), timeout=_SECONDS)
    try:
        return grammar.host_key(" ".join(done.stdout.split()[:2]))
    except ValueError as error:
        raise AdbError(
            f"it has no host key that could be one: {last_lines(done.stderr, 1) or error}",
            code=ErrorCode.HOST_KEY_UNREADABLE,
            remedy="on the phone, in Termux: ssh-keygen -A; then clusterctl bootstrap again",
        ) from error
