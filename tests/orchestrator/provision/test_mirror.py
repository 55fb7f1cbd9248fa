from __future__ import annotations

import http.client
import socket
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.provision.termux.mirror import serve
from orchestrator.provision.termux.snapshot import SnapshotStore
from orchestrator.provision.termux.upstream import Upstream
from tests.orchestrator.provision.repository import ARCH, Deb, write_repository

LOOPBACK = IPv4Network("127.0.0.0/8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/sub/file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    return tmp_path / "root"


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    with serve(root, socket.create_server(("127.0.0.1", 0)), LOOPBACK) as address:
        yield urlsplit(address).netloc


def ask(address: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_file_is_served(address: str) -> None:
    assert ask(address, "/sub/file") == (200, b"content")
    assert ask(address, "/sub/file", "HEAD") == (200, b"")


def test_one_connection_carries_many_requests(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    for _ in range(3):
        connection.request("GET", "/sub/file")
        assert connection.getresponse().read() == b"content"
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/sub",
        "/sub/",
        "/missing",
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "//etc/passwd",
        "/link",
        "/a%00b",
    ],
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    status, body = ask(address, path)
    assert status == 404
    assert b"secret" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_get_and_head_are_allowed(address: str, method: str) -> None:
    assert ask(address, "/sub/file", method)[0] == 501


def test_other_peers_get_no_answer(root: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    refused = pytest.raises((http.client.RemoteDisconnected, ConnectionResetError))
    with serve(root, listener, IPv4Network("10.77.0.0/16")) as address, refused:
        ask(urlsplit(address).netloc, "/sub/file")


def test_the_server_stops_afterwards(root: Path) -> None:
    with serve(root, socket.create_server(("127.0.0.1", 0)), LOOPBACK) as address:
        pass
    with pytest.raises(ConnectionRefusedError):
        ask(urlsplit(address).netloc, "/sub/file")


def test_apt_installs_packages_from_it(tmp_path: Path) -> None:
    """The real apt-get, with its own root directory, resolves and downloads from a served snapshot."""
    url = write_repository(tmp_path / "upstream", [Deb("tool", depends="part"), Deb("part")])
    snapshot = SnapshotStore(tmp_path / "cache", ARCH, Upstream(url)).create(["tool"], [], lambda _: None)
    home = tmp_path / "apt"
    for directory in ("lists/partial", "archives/partial", "etc/preferences.d", "dpkg"):
        (home / directory).mkdir(parents=True)
    (home / "dpkg/status").touch()
    with serve(snapshot.root, socket.create_server(("127.0.0.1", 0)), LOOPBACK) as address:
        (home / "sources.list").write_text(f"deb [trusted=yes] {address}/{snapshot.id} stable main\n")
        options = {
            "Dir::Etc": home / "etc", "Dir::Etc::sourcelist": home / "sources.list",
            "Dir::State::lists": home / "lists",
            "Dir::State::status": home / "dpkg/status", "Dir::Cache": home, "APT::Architecture": ARCH,
            "APT::Architectures": ARCH, "APT::Sandbox::User": "root", "Acquire::http::Proxy": "DIRECT",
        }  # fmt: skip
        flags = [flag for key, value in options.items() for flag in ("-o", f"{key}={value}")]
        for verb in (["update"], ["install", "-y", "--download-only", "tool"]):
            run = subprocess.run(["apt-get", *flags, *verb], check=False, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            assert "W:" not in run.stderr
    assert sorted(deb.name.split("_")[0] for deb in (home / "archives").glob("*.deb")) == ["part", "tool"]
