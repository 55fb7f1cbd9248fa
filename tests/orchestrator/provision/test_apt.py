"""The packages script with real apt and dpkg on a simulated phone, with a snapshot served by the mirror."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import count
from pathlib import Path

import pytest

from orchestrator.lab.termux import build_mirror
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.resources import read_script
from orchestrator.provision.termux.mirror import serve
from orchestrator.provision.termux.snapshot import Snapshot, SnapshotStore, _release
from orchestrator.provision.termux.upstream import Upstream
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.lab.termux_phone import HOST, Phone, bare_phone, open_directory

numbers = count(1)


@dataclass(frozen=True)
class ServedSnapshot:
    directory: Path
    snapshot: Snapshot
    url: str  # of the mirror

    def phone(self) -> Phone:
        return bare_phone(self.directory / f"phone{next(numbers)}")

    def packages(self, phone: Phone, *names: str, repository: str = "") -> subprocess.CompletedProcess[str]:
        url = f"{self.url}/{self.snapshot.arch}/{repository or self.snapshot.id}"
        return phone.run(
            shlex.join(["bash", "-c", read_script("packages"), "clusterctl", url, self.snapshot.sha256, "", *names])
        )


@pytest.fixture(scope="module")
def served() -> Iterator[ServedSnapshot]:
    with open_directory() as directory:
        upstream = build_mirror(directory / "upstream", HOST, prefix=str(directory / "upstream/files/usr"))
        bare = versions(bare_phone(directory / "bare"))
        store = SnapshotStore(directory / "cache", HOST.machine, Upstream(upstream.as_uri()))
        snapshot = store.create(["openssh", "make"], bare, lambda _: None)
        listener = socket.create_server(("127.0.0.1", 0))
        with serve(directory / "cache/termux", listener, IPv4Network("127.0.0.0/8")) as url:
            yield ServedSnapshot(directory, snapshot, url)


def versions(phone: Phone) -> dict[str, str]:
    lines = phone.ok("dpkg-query -W -f '${Package} ${Version}\\n'").splitlines()
    return {name: version for name, _, version in (line.partition(" ") for line in lines)}


def offered(snapshot: Snapshot) -> dict[str, str]:
    return {package.name: package.version for package in snapshot.index}


def test_packages_are_brought_to_the_snapshot(served: ServedSnapshot) -> None:
    phone = served.phone()
    done = served.packages(phone, "make")
    assert done.returncode == 0, done.stdout + done.stderr
    assert versions(phone) == {name: offered(served.snapshot)[name] for name in versions(phone)}
    assert "make" in versions(phone)
    assert not (phone.home / ".clusterctl/apt").exists()


def test_a_foreign_index_is_refused_before_anything_is_installed(served: ServedSnapshot) -> None:
    """A consistent but forged repository: only the hash sent over ssh reveals it."""
    forged = served.snapshot.path.with_name("forged")
    shutil.copytree(served.snapshot.path, forged, symlinks=True)
    (file,) = forged.rglob("Packages")
    data = file.read_bytes().replace(b"Version: 10.5p1", b"Version: 99.5p1")
    index = {"Packages": data, "Packages.gz": gzip.compress(data)}
    for name, content in index.items():
        file.with_name(name).write_bytes(content)
    (forged / "dists/stable/Release").write_text(_release(served.snapshot.arch, index))

    phone = served.phone()
    before = versions(phone)
    refused = served.packages(phone, "make", repository="forged")
    assert refused.returncode == 4
    assert versions(phone) == before
    cause = explain_failure(refused.stdout + refused.stderr)
    assert cause.code is ErrorCode.INDEX_MISMATCH
    assert "another package index than this computer serves" in cause.message
    assert served.snapshot.sha256 in cause.message
    assert "this computer's wired address" in (cause.remedy or "")


def test_newer_packages_are_downgraded_to_the_snapshot(served: ServedSnapshot) -> None:
    phone = served.phone()
    status = phone.prefix / "var/lib/dpkg/status"
    stanzas = status.read_text().split("\n\n")
    ahead = {"libedit": "99990101-3.1", "openssl": "1:99.1"}
    for number, stanza in enumerate(stanzas):
        if (name := stanza.partition("\n")[0].removeprefix("Package: ")) in ahead:
            stanzas[number] = re.sub(r"(?m)^Version: .*$", f"Version: {ahead[name]}", stanza)
    status.write_text("\n\n".join(stanzas))
    assert versions(phone).items() >= ahead.items()
    (phone.prefix / "etc/apt/preferences").write_text("Package: libedit\nPin: version 9999*\nPin-Priority: 2000\n")

    done = served.packages(phone, "make")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 downgraded" in done.stdout
    assert versions(phone) == {name: offered(served.snapshot)[name] for name in versions(phone)}
