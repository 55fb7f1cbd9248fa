"""Commands inside Termux over adb, with run-as: allowed because the Termux APK is debuggable."""

from __future__ import annotations

from typing import Final

from orchestrator.bootstrap.adb import AdbError, AdbResult, Device, shell_arguments
from orchestrator.bootstrap.apk.folder import TERMUX
from orchestrator.inventory import grammar
from orchestrator.provision.files import ManagedFile, tar_archive
from orchestrator.provision.resources import read_script
from orchestrator.provision.steps import boot, keys, sshd
from orchestrator.provision.termux_facts import TermuxFacts, parse_termux_facts
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.text import last_lines

FILES: Final = (keys.AUTHORIZED_KEYS, sshd.DROP_IN, boot.BOOT_SCRIPT)
_HOST_KEY: Final = "etc/ssh/ssh_host_ed25519_key.pub"
_SECONDS: Final = 60.0


def command_line(*command: str) -> tuple[str, ...]:
    """The `adb shell` words that run a command in Termux."""
    return ("run-as", TERMUX, "sh", "-c", read_script("termux"), "termux", *command)


def script_line(name: str, *arguments: str) -> tuple[str, ...]:
    """The `adb shell` words that run one of our scripts in Termux."""
    return command_line("bash", "-c", read_script(name), "clusterctl", *arguments)


def script_preview(name: str, *arguments: str) -> tuple[str, ...]:
    """The adb arguments that run one of our scripts, with file names in place of the script texts: for a dry run."""
    texts = [f"«provisioning/scripts/{each}.sh»" for each in ("termux", name)]
    return shell_arguments("run-as", TERMUX, "sh", "-c", texts[0], "termux", "bash", "-c", texts[1], *arguments)


def collect_termux_facts(device: Device) -> TermuxFacts:
    return parse_termux_facts(device.shell(*script_line("facts", *FILES), timeout=_SECONDS).stdout)


def install_files(device: Device, files: tuple[ManagedFile, ...]) -> None:
    arguments = [word for file in files for word in (f"{file.mode:o}", file.path)]
    result = device.shell(*script_line("install-files", *arguments), stdin=tar_archive(files), timeout=_SECONDS)
    if not result.ok:
        raise AdbError(
            f"cannot write {', '.join(file.path for file in files)}: {result.summary}", code=ErrorCode.COMMAND_FAILED
        )


def run_script(device: Device, name: str, *arguments: str, timeout: float) -> AdbResult:
    return device.shell(*script_line(name, *arguments), timeout=timeout)


def read_host_key(device: Device) -> str:
    """`ssh-ed25519 AAAA…`, read over the cable, where nobody can intercept it."""
    result = device.shell(*command_line("bash", "-c", f'cat "$PREFIX/{_HOST_KEY}"'), timeout=_SECONDS)
    try:
        return grammar.host_key(" ".join(result.stdout.split()[:2]))
    except ValueError as error:
        raise AdbError(
            f"cannot read its SSH host key: {last_lines(result.stderr, 1) or error}",
            code=ErrorCode.HOST_KEY_UNREADABLE,
            remedy="on the phone, in Termux: ssh-keygen -A; then run clusterctl bootstrap again",
        ) from error
