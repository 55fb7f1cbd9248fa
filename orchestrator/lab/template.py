"""What all phones of a lab start from, written once: a bare Termux, Android's side, the package repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from orchestrator.lab.environment import PhonePaths
from orchestrator.lab.layout import LabLayout
from orchestrator.lab.rootfs import HOST_BIN, HOST_SBIN
from orchestrator.lab.spec import LabSpec, Mode
from orchestrator.lab.termux import HostPrograms, build_mirror, write_bootstrap, write_system


def write_template(lab: LabLayout, spec: LabSpec, authorised_key: str) -> None:
    loopback = spec.mode is Mode.LOOPBACK
    host = HostPrograms("/usr/bin", "/usr/sbin") if loopback else HostPrograms(HOST_BIN, HOST_SBIN)
    paths = PhonePaths(Path("/"))
    before = os.umask(0o022)
    try:
        write_bootstrap(lab.bootstrap, host, prefix=str(paths.prefix))
        _authorise(lab.bootstrap / "home", authorised_key)
        write_system(lab.system, lab.sys_class, paths.scenario, host)
        (lab.system / "scenario").mkdir(exist_ok=True)
        build_mirror(lab.upstream, host, prefix=str(paths.prefix))
        lab.staging.mkdir()
        for phone in spec.phones:
            _prepare_phone(lab, phone.name)
    finally:
        os.umask(before)


def _prepare_phone(lab: LabLayout, name: str) -> None:
    own = lab.phone(name)
    for directory in (own.data, own.scenario):
        directory.mkdir(parents=True)
    shutil.copytree(lab.sys_class, own.sys_class, symlinks=True)


def _authorise(home: Path, key: str) -> None:
    """As the bootstrap of a real phone does over adb."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    authorized_keys = ssh / "authorized_keys"
    authorized_keys.write_text(key)
    authorized_keys.chmod(0o600)
