"""Real apt and dpkg, as an unprivileged uid, against the lab's mirror."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from orchestrator.lab.termux import HostPrograms, build_mirror
from orchestrator.lab.termux.layout import TERMUX_PREFIX
from tests.orchestrator.lab.termux_phone import HOST, KEEP_CONFFILES, Phone, bare_phone, open_directory, served_mirror

numbers = count(1)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with open_directory() as found:
        yield found


@pytest.fixture(scope="module")
def mirror(directory: Path) -> Iterator[str]:
    with served_mirror(directory / "mirror") as url:
        yield url


@pytest.fixture
def phone(directory: Path, mirror: str) -> Phone:
    """A bare phone that uses the mirror."""
    found = bare_phone(directory / f"phone{next(numbers)}")
    found.use_mirror(mirror)
    return found


@pytest.fixture(scope="module")
def provisioned(directory: Path, mirror: str) -> Phone:
    found = bare_phone(directory / "provisioned")
    found.use_mirror(mirror)
    found.ok(f"apt-get update && apt-get -y {KEEP_CONFFILES} dist-upgrade")
    found.ok("apt-get -y --no-install-recommends install python python-numpy python-pip")
    return found


def test_a_bare_phone_has_sshd_and_a_package_manager_but_no_python(directory: Path) -> None:
    phone = bare_phone(directory / "bare")
    assert phone.ok("command -v sshd apt-get dpkg pkg curl awk").count("\n") == 6
    assert phone.run("command -v python3 mpirun clang").returncode == 1
    assert "packages-cf.termux.dev/apt/termux-main" in phone.ok("cat $PREFIX/etc/apt/sources.list")
    assert phone.ok("dpkg --audit") == ""
    assert phone.ok("dpkg --print-architecture").strip() == HOST.machine
    assert phone.ok("dpkg-query -W -f '${Version} ${Status}' openssh") == "10.3p1-1 install ok installed"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_apt_and_pkg_refuse_root(phone: Phone) -> None:
    for program in ("apt", "apt-get", "pkg"):
        argv = [str(phone.prefix / "bin" / program), "update"]
        refused = subprocess.run(argv, env=phone.environment(), capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert "root" in refused.stdout


def test_every_dependency_is_in_the_mirror(phone: Phone) -> None:
    phone.ok("apt-get update")
    assert "Package " not in phone.ok("apt-cache unmet -i")
    phone.ok("apt-get check")


def test_a_full_upgrade_keeps_host_keys_and_conffiles(phone: Phone) -> None:
    host_key = phone.ok("cat $PREFIX/etc/ssh/ssh_host_ed25519_key.pub")
    before = phone.ok("cat $PREFIX/etc/tls/openssl.cnf")
    phone.ok(f"apt-get update && apt-get -y {KEEP_CONFFILES} dist-upgrade")
    assert phone.ok("dpkg-query -W -f '${Version}' openssh") == "10.5p1"
    assert phone.ok("cat $PREFIX/etc/ssh/ssh_host_ed25519_key.pub") == host_key
    assert phone.ok("cat $PREFIX/etc/tls/openssl.cnf") == before
    assert "1:3.6.3" in phone.ok("cat $PREFIX/etc/tls/openssl.cnf.dpkg-dist")
    assert "0 upgraded, 0 newly installed" in phone.ok("apt-get -y dist-upgrade")
    assert phone.ok("dpkg --audit") == ""


def test_an_upgrade_without_conffile_options_stops_at_the_prompt(phone: Phone) -> None:
    phone.ok("apt-get update")
    upgrade = phone.run("apt-get -y dist-upgrade")
    assert upgrade.returncode != 0
    assert f"Configuration file '{TERMUX_PREFIX}/etc/tls/openssl.cnf'" in upgrade.stdout
    assert "end of file on stdin at conffile prompt" in upgrade.stdout + upgrade.stderr


def test_python_uses_the_termux_prefix(provisioned: Phone) -> None:
    script = "import sys, sysconfig, numpy; print(sys.prefix, sysconfig.get_path('purelib'), numpy.__file__)"
    answers = provisioned.ok(f'python3 -c "{script}"').split()
    assert answers[0] == str(provisioned.prefix)
    assert all(answer.startswith(f"{provisioned.prefix}/lib/python3") for answer in answers[1:])
    assert "numpy" in provisioned.ok("python3 -m pip list")


def test_a_second_install_changes_nothing(provisioned: Phone) -> None:
    again = provisioned.ok("apt-get -y install python python-numpy")
    assert "python is already the newest version (3.14.6-1)." in again
    assert "0 upgraded, 0 newly installed, 0 to remove" in again


def test_pkg_keeps_the_mirror_if_mirror_selection_is_disabled(provisioned: Phone, mirror: str) -> None:
    provisioned.ok("pkg update", TERMUX_PKG_NO_MIRROR_SELECT="1")
    assert mirror in provisioned.ok("cat $PREFIX/etc/apt/sources.list")
    assert "python-numpy" in provisioned.ok("pkg list-installed", TERMUX_PKG_NO_MIRROR_SELECT="1")
    assert provisioned.run("pkg conjure").returncode == 1


def test_apt_fails_only_while_the_mirror_is_down(phone: Phone) -> None:
    phone.set("mirror", "down")
    failed = phone.run("apt-get -o APT::Update::Error-Mode=any update")
    assert failed.returncode != 0
    phone.set("mirror", "up")
    phone.ok("apt-get -o APT::Update::Error-Mode=any update")


def test_removing_a_package_removes_its_programs(phone: Phone) -> None:
    phone.ok("apt-get update && apt-get -y --no-install-recommends install iperf3 make")
    assert phone.ok("command -v make").strip() == str(phone.prefix / "bin/make")
    phone.ok("apt-get -y remove make")
    assert phone.run("command -v make").returncode == 1


def test_the_mirror_is_reproducible_and_its_checksums_match(directory: Path, mirror: str) -> None:
    built = directory / "mirror"
    again = build_mirror(directory / "again", HOST, prefix=str(directory / "mirror/files/usr"))
    assert _tree(again) == _tree(built)
    release = (built / "dists/stable/Release").read_text()
    index = built / f"dists/stable/main/binary-{HOST.machine}/Packages"
    assert sha256(index.read_bytes()).hexdigest() in release
    paragraphs = [dict(line.split(": ", 1) for line in each.splitlines()) for each in _paragraphs(index)]
    assert len(paragraphs) > 100
    for fields in paragraphs:
        deb = (built / fields["Filename"]).read_bytes()
        assert (str(len(deb)), sha256(deb).hexdigest()) == (fields["Size"], fields["SHA256"])


def test_packages_contain_termux_paths_and_links_to_host_programs(tmp_path: Path) -> None:
    masked = HostPrograms("/apex/host/bin", "/apex/host/sbin")
    mirror = build_mirror(tmp_path, masked, prefix=str(TERMUX_PREFIX))
    openmpi = next(mirror.glob("pool/main/o/openmpi/*.deb"))
    listing = _dpkg_deb("--contents", openmpi)
    assert f".{TERMUX_PREFIX}/bin/mpirun -> /apex/host/bin/orterun" in listing
    assert "root/root" in listing
    openssh = next(mirror.glob("pool/main/o/openssh/*.deb"))
    assert f"{TERMUX_PREFIX}/etc/ssh/sshd_config" in _dpkg_deb("--info", openssh, "conffiles")
    assert _dpkg_deb("--info", openssh, "postinst").startswith(f"#!{TERMUX_PREFIX}/bin/sh\n")


def _tree(root: Path) -> dict[str, str]:
    files = (file for file in root.rglob("*") if file.is_file())
    return {str(file.relative_to(root)): sha256(file.read_bytes()).hexdigest() for file in files}


def _paragraphs(index: Path) -> list[str]:
    return index.read_text().strip().split("\n\n")


def _dpkg_deb(*arguments: str | Path) -> str:
    argv = ["dpkg-deb", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
