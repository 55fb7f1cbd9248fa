"""Faults that a person may cause on a phone: other host keys, an upgrade waiting at a prompt, an outdated package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.lab.client import exec_on_phone, request, wait_for_sshd
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.termux.catalog import load_catalog

_KEY_KINDS = ("ecdsa", "ed25519")
_CONFFILE_PACKAGE = "openssl"  # a package with a configuration file
_PROMPT = "[default=N] ?"
_OUTDATED_PACKAGE, _OUTDATED_VERSION = "openmpi", "4.1.4-2"

# Bash scripts that run on the phone.
_SAVE_DEB = 'cat >"$PREFIX/../../cache/apt/archives/$1"'
_EDIT_CONFFILE = 'echo "# edited by hand" >>"$PREFIX/etc/tls/openssl.cnf"'
_INSTALL = 'exec dpkg --force-confask,depends -i "$PREFIX/../../cache/apt/archives/$1"'
_KILL_APT = "pkill -KILL -x 'apt|apt-get'; pkill -KILL -x dpkg; true"
_CONFIGURE_ALL = "dpkg --force-confold,depends --configure -a >/dev/null 2>&1"
_SET_VERSION = r"""
status=$PREFIX/var/lib/dpkg/status
grep -qx "Package: $1" "$status" || exit 3
sed -i "/^Package: $1\$/,/^\$/ s/^Version: .*/Version: $2/" "$status"
"""
_NOT_INSTALLED = 3


def regenerate_host_keys(lab_dir: Path, phone: str) -> None:
    """New host keys at the same address, as after a factory reset."""
    for kind in _KEY_KINDS:
        make = 'rm -f "$1" "$1.pub"; ssh-keygen -q -t "$2" -N "" -C "" -f "$1"'
        _bash(lab_dir, phone, f'set -- "$PREFIX/etc/ssh/ssh_host_$1_key" "$1"\n{make}', kind)
    _reload_sshd(lab_dir, phone)


def copy_host_keys(lab_dir: Path, phone: str, other: str) -> None:
    """The host keys of another phone, as on a phone whose $PREFIX was copied from it."""
    for kind in _KEY_KINDS:
        for suffix in ("", ".pub"):
            name = f"ssh_host_{kind}_key{suffix}"
            reading, writing = os.pipe()
            with os.fdopen(reading, "rb") as from_other, os.fdopen(writing, "wb") as to_phone:
                _bash(lab_dir, other, 'cat "$PREFIX/etc/ssh/$1"', name, stdio=(0, to_phone.fileno(), 2))
                to_phone.close()
                _bash(lab_dir, phone, 'cat >"$PREFIX/etc/ssh/$1"', name, stdio=(from_other.fileno(), 1, 2))
    _reload_sshd(lab_dir, phone)


def start_dpkg_prompt(lab_dir: Path, phone: str) -> None:
    """Start a real dpkg that waits at its terminal for an answer about an edited configuration file."""
    _bash(lab_dir, phone, _KILL_APT)
    deb = next((LabLayout(lab_dir).upstream / "pool").rglob(f"{_CONFFILE_PACKAGE}_*.deb"))
    with deb.open("rb") as stream:
        _bash(lab_dir, phone, _SAVE_DEB, deb.name, stdio=(stream.fileno(), 1, 2))
    _bash(lab_dir, phone, _EDIT_CONFFILE)
    argv = ["bash", "-c", _INSTALL, "bash", deb.name]
    request(lab_dir, {"op": "terminal", "phone": phone, "argv": argv, "until": _PROMPT})


def finish_dpkg_prompt(lab_dir: Path, phone: str) -> None:
    _bash(lab_dir, phone, _KILL_APT)
    _bash(lab_dir, phone, _CONFIGURE_ALL)


def set_outdated_package(lab_dir: Path, phone: str) -> None:
    """Another package version than on other phones, as if the phone had been provisioned on another day."""
    _set_version(lab_dir, phone, _OUTDATED_VERSION)


def restore_package(lab_dir: Path, phone: str) -> None:
    _set_version(
        lab_dir, phone, next(package.version for package in load_catalog() if package.name == _OUTDATED_PACKAGE)
    )


def _set_version(lab_dir: Path, phone: str, version: str) -> None:
    code = exec_on_phone(lab_dir, phone, ["bash", "-c", _SET_VERSION, "bash", _OUTDATED_PACKAGE, version])
    if code == _NOT_INSTALLED:
        raise ClusterctlError(f"{phone} has no {_OUTDATED_PACKAGE} installed", remedy="clusterctl provision")
    if code != 0:
        raise ClusterctlError(f"cannot set the version of {_OUTDATED_PACKAGE} on {phone}: exit code {code}")


def _reload_sshd(lab_dir: Path, phone: str) -> None:
    request(lab_dir, {"op": "sshd", "phone": phone, "state": "reload"})
    wait_for_sshd(lab_dir, [phone])


def _bash(lab_dir: Path, phone: str, script: str, *arguments: str, stdio: Sequence[int] = (0, 1, 2)) -> None:
    if (code := exec_on_phone(lab_dir, phone, ["bash", "-c", script, "bash", *arguments], stdio)) != 0:
        raise ClusterctlError(f"`{script.strip()}` on {phone} failed with exit code {code}")
