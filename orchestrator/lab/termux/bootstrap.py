"""$PREFIX and $HOME of a phone right after the Termux app unpacked its bootstrap."""

from __future__ import annotations

from pathlib import Path

from orchestrator.lab.termux.host import HostPrograms

_PROGRAMS = (
    "bash cat chmod cp curl cut date df dirname du env find grep gzip head id kill ln ls mkdir mktemp mv nohup nproc "
    "ps pgrep pkill readlink rm rmdir sed setsid sha256sum sleep sort ssh ssh-keygen stat tail tar taskset tee timeout "
    "touch tr uname wc xz awk basename free"
).split()
_SSHD_CONFIG = """\
Port 8022
PrintMotd yes
PasswordAuthentication yes
UsePAM no
PidFile {prefix}/var/run/sshd.pid
HostKey {prefix}/etc/ssh/ssh_host_ed25519_key
Include {prefix}/etc/ssh/sshd_config.d/*.conf
Subsystem sftp {prefix}/libexec/sftp-server
"""


def write_bootstrap(files: Path, host: HostPrograms, *, prefix: str) -> None:
    """`files` becomes Termux's data directory: files/usr is $PREFIX, files/home is $HOME.

    `prefix` is the path the phone will see files/usr at. The caller gives the tree to the phone's uid.
    """
    usr = files / "usr"
    for directory in ("bin", "etc/ssh/sshd_config.d", "libexec", "tmp", "var/run"):
        (usr / directory).mkdir(parents=True, exist_ok=True)
    (files / "home" / ".ssh").mkdir(parents=True, mode=0o700, exist_ok=True)
    for name in _PROGRAMS:
        (usr / "bin" / name).symlink_to(host.program(name))
    (usr / "bin" / "sh").symlink_to(host.program("dash"))
    (usr / "libexec" / "sftp-server").symlink_to("/usr/lib/openssh/sftp-server")
    (usr / "etc/ssh/sshd_config").write_text(_SSHD_CONFIG.format(prefix=prefix))
    sshd = usr / "bin/sshd"
    sshd.write_text(
        f"#!{host.bin}/bash\n"
        f'[ -e {prefix}/etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -N "" -t ed25519 '
        f"-f {prefix}/etc/ssh/ssh_host_ed25519_key\n"
        f'exec {host.program("sshd")} -f {prefix}/etc/ssh/sshd_config "$@"\n'
    )
    sshd.chmod(0o755)
