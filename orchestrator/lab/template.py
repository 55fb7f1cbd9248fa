"""What the phones of a lab start from: a bare Termux, Android's side, and the package repository."""

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

_WITHIN_REACH = "/var/tmp"  # noqa: S108 (under a name nobody can guess)
_PLAIN = HostPrograms("/usr/bin", "/usr/sbin")


def write_template(lab: LabLayout, spec: LabSpec, authorised_key: str) -> None:
    with _readable_by_phones():
        if spec.mode is Mode.LOOPBACK:
            _write_each(lab, spec, authorised_key)
        else:
            _write_once(lab, spec, authorised_key)


def _write_once(lab: LabLayout, spec: LabSpec, authorised_key: str) -> None:
    """In namespaces all phones see the same paths: one Termux is copied to each when it first starts."""
    prefix = str(PhonePaths(Path("/")).prefix)
    masked = HostPrograms(HOST_BIN, HOST_SBIN, spec.shape.arch.machine, lab.userland.resolve())
    build_mirror(lab.upstream, masked, prefix=prefix)
    write_bootstrap(lab.termux / "files", masked, prefix=prefix)
    _authorise(lab.termux, authorised_key)
    write_system(lab.system, lab.sys_class, lab.system / "scenario", masked)
    lab.staging.mkdir()
    for phone in spec.phones:
        own = lab.phone(phone.name)
        own.data.mkdir(parents=True)
        shutil.copytree(lab.system / "scenario", own.scenario)
        shutil.copytree(lab.sys_class, own.sys_class)


def _write_each(lab: LabLayout, spec: LabSpec, authorised_key: str) -> None:
    """Without namespaces every phone has other paths, and its sshd an address to keep to."""
    if has_own_uid(spec.mode):
        _move_within_reach(lab)
    for phone in spec.phones:
        own = lab.phone(phone.name)
        prefix = str(PhonePaths(own.root).prefix)
        write_bootstrap(own.termux / "files", _PLAIN, prefix=prefix)
        _authorise(own.termux, authorised_key)
        _keep_to_address(own, phone)
        write_system(own.system, own.sys_class, own.scenario, _PLAIN)
    build_mirror(lab.upstream, _PLAIN, prefix=prefix)


def _move_within_reach(lab: LabLayout) -> None:
    """Phones with uids of their own cannot look into root's home. The link comes first: who removes it finds all."""
    place = Path(_WITHIN_REACH, f"clusterctl-lab-{secrets.token_hex(4)}")
    lab.phones.symlink_to(place)
    place.mkdir(mode=0o711)


def remove_phones(lab: LabLayout) -> None:
    """Removes what `_move_within_reach` put elsewhere."""
    if lab.phones.is_symlink() and (place := lab.phones.readlink()).exists():
        shutil.rmtree(place)


def _authorise(termux: Path, key: str) -> None:
    """As the bootstrap of a real phone does over adb."""
    authorized_keys = termux / "files/home/.ssh/authorized_keys"
    authorized_keys.write_text(key)


def _keep_to_address(own: PhoneLayout, phone: VirtualPhone) -> None:
    drop_in = own.termux / "files/usr/etc/ssh/sshd_config.d/lab.conf"
    drop_in.write_text(f"ListenAddress {phone.address}\n")


def make_host_keys(termux: Path) -> None:
    """A host key of its own for each that the template has, as openssh's postinst makes them."""
    for key in sorted((termux / "files/usr/etc/ssh").glob("ssh_host_*_key")):
        kind = key.name.split("_")[2]
        for file in (key, key.with_suffix(".pub")):
            file.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(key)], check=True)


@contextmanager
def _readable_by_phones() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)
