"""What somebody may have done to a phone by hand: other host keys, an upgrade left waiting, an old package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.lab.client import request
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.remote import run
from orchestrator.lab.status import await_sshd
from orchestrator.lab.termux.catalogue import catalogue

_KEY_KINDS = ("ecdsa", "ed25519")
_ASKED = "openssl"  # a package with a configuration file
_PROMPT = "[default=N] ?"
_AGED, _OLDER_VERSION = "openmpi", "4.1.4-2"

# Each is run by bash on the phone, with what it needs as arguments.
_KEEP_DEB = 'cat >"$PREFIX/../../cache/apt/archives/$1"'
_EDIT_CONFFILE = 'echo "# edited by hand" >>"$PREFIX/etc/tls/openssl.cnf"'
_INSTALL = 'exec dpkg --force-confask,depends -i "$PREFIX/../../cache/apt/archives/$1"'
_END_APT = "pkill -KILL -x 'apt|apt-get'; pkill -KILL -x dpkg; true"
_FINISH = "dpkg --force-confold,depends --configure -a >/dev/null 2>&1"
_SET_VERSION = r"""
status=$PREFIX/var/lib/dpkg/status
grep -qx "Package: $1" "$status" || exit 3
sed -i "/^Package: $1\$/,/^\$/ s/^Version: .*/Version: $2/" "$status"
"""
_NOT_INSTALLED = 3


def renew_host_keys(lab_dir: Path, phone: str) -> None:
    """As after a factory reset: the same address, another key."""
    for kind in _KEY_KINDS:
        make = 'rm -f "$1" "$1.pub"; ssh-keygen -q -t "$2" -N "" -C "" -f "$1"'
        _bash(lab_dir, phone, f'set -- "$PREFIX/etc/ssh/ssh_host_$1_key" "$1"\n{make}', kind)
    _reload_sshd(lab_dir, phone)


def share_host_keys(lab_dir: Path, phone: str, other: str) -> None:
    """As on a phone whose $PREFIX is a copy of another's."""
    for kind in _KEY_KINDS:
        for suffix in ("", ".pub"):
            name = f"ssh_host_{kind}_key{suffix}"
            reading, writing = os.pipe()
            with os.fdopen(reading, "rb") as from_other, os.fdopen(writing, "wb") as to_phone:
                _bash(lab_dir, other, 'cat "$PREFIX/etc/ssh/$1"', name, stdio=(0, to_phone.fileno(), 2))
                to_phone.close()
                _bash(lab_dir, phone, 'cat >"$PREFIX/etc/ssh/$1"', name, stdio=(from_other.fileno(), 1, 2))
    _reload_sshd(lab_dir, phone)


def leave_at_prompt(lab_dir: Path, phone: str) -> None:
    """A real dpkg that asks its terminal what to do with an edited configuration file, and gets no answer."""
    _bash(lab_dir, phone, _END_APT)
    deb = next((LabLayout(lab_dir).upstream / "pool").rglob(f"{_ASKED}_*.deb"))
    with deb.open("rb") as stream:
        _bash(lab_dir, phone, _KEEP_DEB, deb.name, stdio=(stream.fileno(), 1, 2))
    _bash(lab_dir, phone, _EDIT_CONFFILE)
    argv = ["bash", "-c", _INSTALL, "bash", deb.name]
    request(lab_dir, {"op": "terminal", "phone": phone, "argv": argv, "until": _PROMPT})


def leave_prompt(lab_dir: Path, phone: str) -> None:
    _bash(lab_dir, phone, _END_APT)
    _bash(lab_dir, phone, _FINISH)


def age_packages(lab_dir: Path, phone: str) -> None:
    """As on a phone that was provisioned another day than the others."""
    _set_version(lab_dir, phone, _OLDER_VERSION)


def renew_packages(lab_dir: Path, phone: str) -> None:
    _set_version(lab_dir, phone, next(package.version for package in catalogue() if package.name == _AGED))


def _set_version(lab_dir: Path, phone: str, version: str) -> None:
    code = run(lab_dir, phone, ["bash", "-c", _SET_VERSION, "bash", _AGED, version])
    if code == _NOT_INSTALLED:
        raise ClusterctlError(f"{phone} has no {_AGED} whose version could differ", remedy="clusterctl provision")
    if code != 0:
        raise ClusterctlError(f"setting the version of {_AGED} on {phone} ended with {code}")


def _reload_sshd(lab_dir: Path, phone: str) -> None:
    request(lab_dir, {"op": "sshd", "phone": phone, "state": "reload"})
    await_sshd(lab_dir, [phone])


def _bash(lab_dir: Path, phone: str, script: str, *arguments: str, stdio: Sequence[int] = (0, 1, 2)) -> None:
    if (code := run(lab_dir, phone, ["bash", "-c", script, "bash", *arguments], stdio)) != 0:
        raise ClusterctlError(f"`{script.strip()}` on {phone} ended with {code}")
