"""Initial files of the phones: a bare Termux, the Android system files, and the package repository."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.identity import has_own_uid
from orchestrator.lab.layout import LabLayout, PhoneLayout
from orchestrator.lab.rootfs import HOST_BIN, HOST_SBIN
from orchestrator.lab.spec import LabSpec, Mode, VirtualPhone
from orchestrator.lab.termux import HostPrograms, build_mirror, write_bootstrap, write_system

_SHARED_TMP = "/var/tmp"  # noqa: S108 (the directory name is random)
_UNMASKED = HostPrograms("/usr/bin", "/usr/sbin")


def write_template(lab: LabLayout, spec: LabSpec, authorized_key: str) -> None:
    with _world_readable():
        if spec.mode is Mode.LOOPBACK:
            _write_per_phone(lab, spec, authorized_key)
        else:
            _write_shared(lab, spec, authorized_key)


def _write_shared(lab: LabLayout, spec: LabSpec, authorized_key: str) -> None:
    """With namespaces, all phones see the same paths: one template is copied to each phone on first start."""
    prefix = str(PhonePaths(Path("/")).prefix)
    masked = HostPrograms(HOST_BIN, HOST_SBIN, spec.config.arch.machine, lab.userland.resolve())
    build_mirror(lab.upstream, masked, prefix=prefix)
    write_bootstrap(lab.termux / "files", masked, prefix=prefix)
    _authorize(lab.termux, authorized_key)
    write_system(lab.system, lab.sys_class, lab.system / "scenario", masked)
    lab.staging.mkdir()
    for phone in spec.phones:
        files = lab.phone(phone.name)
        files.data.mkdir(parents=True)
        shutil.copytree(lab.system / "scenario", files.scenario)
        shutil.copytree(lab.sys_class, files.sys_class)


def _write_per_phone(lab: LabLayout, spec: LabSpec, authorized_key: str) -> None:
    """Without namespaces, paths differ between phones, and each sshd must listen on its own address only."""
    if has_own_uid(spec.mode):
        _relocate_phones(lab)
    for phone in spec.phones:
        files = lab.phone(phone.name)
        prefix = str(PhonePaths(files.root).prefix)
        write_bootstrap(files.termux / "files", _UNMASKED, prefix=prefix)
        _authorize(files.termux, authorized_key)
        _set_listen_address(files, phone)
        write_system(files.system, files.sys_class, files.scenario, _UNMASKED)
    build_mirror(lab.upstream, _UNMASKED, prefix=prefix)


def _relocate_phones(lab: LabLayout) -> None:
    """Phones with their own uids cannot access root's home, so their files go to /var/tmp.

    The symlink is created first, so that `lab down` finds the directory at any time.
    """
    directory = Path(_SHARED_TMP, f"clusterctl-lab-{secrets.token_hex(4)}")
    lab.phones.symlink_to(directory)
    directory.mkdir(mode=0o711)


def remove_phones(lab: LabLayout) -> None:
    """Remove the directory created by `_relocate_phones`."""
    if lab.phones.is_symlink() and (directory := lab.phones.readlink()).exists():
        shutil.rmtree(directory)


def _authorize(termux: Path, key: str) -> None:
    """Install the login key, as `clusterctl bootstrap` does on a real phone over adb."""
    authorized_keys = termux / "files/home/.ssh/authorized_keys"
    authorized_keys.write_text(key)


def _set_listen_address(files: PhoneLayout, phone: VirtualPhone) -> None:
    drop_in = files.termux / "files/usr/etc/ssh/sshd_config.d/lab.conf"
    drop_in.write_text(f"ListenAddress {phone.address}\n")


def make_host_keys(termux: Path) -> None:
    """Replace the host keys of the template by new ones, so that every phone has its own."""
    for key in sorted((termux / "files/usr/etc/ssh").glob("ssh_host_*_key")):
        kind = key.name.split("_")[2]
        for file in (key, key.with_suffix(".pub")):
            file.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(key)], check=True)


@contextmanager
def _world_readable() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)
