"""Write $PREFIX and $HOME of a phone as they are after the Termux bootstrap and `pkg install openssh`."""

from __future__ import annotations

import subprocess
from hashlib import md5
from pathlib import Path

from orchestrator.lab.termux.catalog import Package, load_catalog, paragraph
from orchestrator.lab.termux.contents import Entry, installed_kib, maintainer_scripts, package_entries
from orchestrator.lab.termux.deb import conffiles, directories, md5sums
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.layout import TERMUX_PREFIX, TermuxLayout

_DIRECTORIES = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "etc/profile.d",
    "etc/ssh/ssh_config.d",
    "etc/ssh/sshd_config.d",
    "libexec/lab",
    "tmp",
    "var/empty",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg/alternatives",
    "var/lib/dpkg/info",
    "var/lib/dpkg/triggers",
    "var/lib/dpkg/updates",
    "var/log/apt",
    "var/run",
)

# Installed by dpkg, not unpacked from the bootstrap archive, so dpkg has checksums of their conffiles.
_INSTALLED_BY_DPKG = frozenset({"openssh", "openssh-sftp-server"})

_APT_CONF = """\
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
DPkg::Path "{prefix}/bin";
Dir::Bin::dpkg "{prefix}/bin/dpkg";
Dir::Cache "{cache}";
Dir::Etc "{prefix}/etc/apt";
Dir::Log "{prefix}/var/log/apt";
Dir::State "{prefix}/var/lib/apt";
Dir::State::status "{prefix}/var/lib/dpkg/status";
"""

_SSH_CONFIG = """\
Include ~/.ssh/config
Match all
Include {prefix}/etc/ssh/ssh_config
"""


def write_bootstrap(files: Path, host: HostPrograms, *, prefix: str) -> None:
    """Write Termux's data directory to `files`: files/usr is $PREFIX, files/home is $HOME.

    `prefix` is the path of files/usr as seen by the phone. Termux's cache directory is created next to `files`, and
    must be next to it on the phone as well. The caller changes the owner to the phone's uid.
    """
    layout = TermuxLayout(host, prefix)
    usr = files / "usr"
    for directory in _DIRECTORIES:
        (usr / directory).mkdir(parents=True, exist_ok=True)
    installed = [package.at_bootstrap() for package in load_catalog() if package.bootstrap]
    status = [_unpack(package, usr, layout) for package in installed]
    (usr / "var/lib/dpkg/status").write_text("\n".join(status))
    _write_lab_files(usr, layout)
    _write_home(files / "home")
    _make_host_keys(usr / "etc/ssh")
    (files.parent / "cache" / "apt" / "archives" / "partial").mkdir(parents=True, exist_ok=True)


def _unpack(package: Package, usr: Path, layout: TermuxLayout) -> str:
    """Write the package's files and its records in the dpkg database. Return its paragraph of the status file."""
    entries = package_entries(package, layout)
    for entry in entries:
        _write(usr / entry.path, entry)
    _record(package, entries, usr / "var/lib/dpkg/info", layout)
    fields = {**package.control(installed_kib(entries)), "Status": "install ok installed"}
    if package.name in _INSTALLED_BY_DPKG and package.conffiles:
        fields["Conffiles"] = _conffile_sums(package, entries)
    return paragraph(fields)


def _write(path: Path, entry: Entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.link is not None:
        path.symlink_to(entry.link)
        return
    path.write_bytes(entry.data)
    path.chmod(entry.mode)


def _record(package: Package, entries: list[Entry], info: Path, layout: TermuxLayout) -> None:
    paths = [*directories(entries), *(TERMUX_PREFIX / entry.path for entry in entries)]
    records = {
        "list": "".join(f"{'/.' if str(path) == '/' else path}\n" for path in paths),
        "md5sums": md5sums(entries),
        "conffiles": conffiles(package),
        **{name: script.decode() for name, script in maintainer_scripts(package, layout).items()},
    }
    for name, text in records.items():
        if text:
            record = info / f"{package.name}.{name}"
            record.write_text(text)
            record.chmod(0o755 if text.startswith("#!") else 0o644)


def _conffile_sums(package: Package, entries: list[Entry]) -> str:
    data = {entry.path: entry.data for entry in entries}
    lines = (
        f"\n {TERMUX_PREFIX}/{path} {md5(data[path], usedforsecurity=False).hexdigest()}" for path in package.conffiles
    )
    return "".join(lines)


def _write_lab_files(usr: Path, layout: TermuxLayout) -> None:
    """Configure the host's apt, dpkg and ssh for the phone's paths, which Termux's builds have compiled in."""
    lab, prefix = usr / "libexec/lab", Path(layout.prefix)
    cache = prefix.parent.parent / "cache" / "apt"
    (lab / "apt.conf").write_text(_APT_CONF.format(architecture=layout.host.machine, prefix=prefix, cache=cache))
    (lab / "ssh_config").write_text(_SSH_CONFIG.format(prefix=prefix))
    if layout.relocated:  # dpkg installs under a root directory in which Termux's path is a symlink to $PREFIX
        root = lab / "root" / TERMUX_PREFIX.relative_to("/").parent
        root.parent.mkdir(parents=True)
        root.symlink_to(prefix.parent)


def _write_home(home: Path) -> None:
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh").chmod(0o700)
    keys = home / ".ssh" / "authorized_keys"
    keys.touch()
    keys.chmod(0o600)


def _make_host_keys(etc_ssh: Path) -> None:
    """Generate host keys, as the postinst script of openssh does."""
    for kind in ("ecdsa", "ed25519"):
        key = etc_ssh / f"ssh_host_{kind}_key"
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "", "-t", kind, "-f", str(key)], check=True)
