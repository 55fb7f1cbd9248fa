from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.provision.package_source import PackageSource
from orchestrator.provision.resources import PackageList
from orchestrator.provision.termux.index import MissingPackageError
from orchestrator.provision.termux.snapshot import Snapshot, SnapshotStore
from orchestrator.provision.termux.upstream import Upstream, UpstreamError
from tests.orchestrator.provision.repository import ARCH, Deb, write_repository
from tests.orchestrator.provision.samples import facts

DEBS = [
    Deb("python", "3.14.6-1", depends="libffi (>= 3)"),
    Deb("libffi", "3.4"),
    Deb("bash", "5.3"),
    Deb("unwanted"),
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_repository(tmp_path / "upstream", DEBS)
    return tmp_path / "upstream"


@pytest.fixture
def store(tmp_path: Path, repository: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "cache", ARCH, Upstream(repository.as_uri()))


def take(store: SnapshotStore) -> tuple[Snapshot, list[str]]:
    printed: list[str] = []
    return store.create(["python"], ["bash", "not-in-the-repository"], printed.append), printed


def test_a_snapshot_contains_required_and_installed_packages(store: SnapshotStore) -> None:
    snapshot, printed = take(store)
    assert [package.name for package in snapshot.index] == ["bash", "libffi", "python"]
    assert len(list((snapshot.path / "pool").glob("*.deb"))) == 3
    assert any("downloading 3 packages" in line for line in printed)


def test_a_second_snapshot_downloads_nothing_and_has_the_same_id(store: SnapshotStore) -> None:
    first, _ = take(store)
    second, printed = take(store)
    assert (second.id, printed) == (first.id, [])


def test_a_new_upstream_version_makes_a_new_snapshot_with_one_download(store: SnapshotStore, repository: Path) -> None:
    first, _ = take(store)
    write_repository(repository, [*DEBS[1:], Deb("python", "3.14.7-1", depends="libffi (>= 3)")])
    second, printed = take(store)
    assert second.id != first.id
    assert second.index["python"].version == "3.14.7-1"
    assert any("downloading 1 packages" in line for line in printed)


def test_a_package_with_a_wrong_hash_is_refused(store: SnapshotStore, repository: Path) -> None:
    deb = repository / "pool/libffi_3.4.deb"
    deb.write_bytes(deb.read_bytes()[:-1] + b"X")
    with pytest.raises(UpstreamError, match=r"libffi 3\.4 .* has sha256"):
        take(store)


def test_an_index_with_a_wrong_hash_is_refused(store: SnapshotStore, repository: Path) -> None:
    (repository / f"dists/stable/main/binary-{ARCH}/Packages.gz").write_bytes(b"something else")
    with pytest.raises(UpstreamError, match="does not match its sha256 in Release"):
        take(store)


def test_a_missing_dependency_is_reported(store: SnapshotStore, repository: Path) -> None:
    write_repository(repository, DEBS[:1])
    with pytest.raises(MissingPackageError, match="libffi"):
        take(store)


def test_an_interrupted_download_is_not_mistaken_for_a_package(store: SnapshotStore, repository: Path) -> None:
    snapshot, _ = take(store)
    (package,) = (snapshot.path / "pool").glob("libffi*.deb")
    whole = package.read_bytes()
    package.unlink()
    package.with_name(package.name + ".part").write_bytes(whole[:100])
    take(store)
    assert package.read_bytes() == whole


def test_the_latest_snapshot_is_available_without_upstream(store: SnapshotStore, repository: Path) -> None:
    assert store.latest() is None
    taken, _ = take(store)
    (repository / "dists/stable/Release").unlink()
    with pytest.raises(UpstreamError, match="cannot read"):
        take(store)
    latest = store.latest()
    assert latest is not None
    assert (latest.id, latest.fresh) == (taken.id, False)


def test_an_incomplete_snapshot_is_not_used(store: SnapshotStore) -> None:
    snapshot, _ = take(store)
    next((snapshot.path / "pool").glob("bash*")).unlink()
    assert store.latest() is None


def test_pruning_deletes_old_snapshots_and_their_packages(store: SnapshotStore, repository: Path) -> None:
    for patch in range(8):
        write_repository(repository, [*DEBS[1:], Deb("python", f"3.14.{patch}", depends="libffi (>= 3)")])
        snapshot, _ = take(store)
        for path in (snapshot.path / "dists", *(snapshot.root / "pool").iterdir()):
            os.utime(path, (patch, patch))
    assert len(list(snapshot.root.glob("*/dists"))) == 6
    assert len(list((snapshot.root / "pool").glob("python_*.deb"))) == 6
    assert len(list((snapshot.root / "pool").glob("libffi_*.deb"))) == 1


def test_an_architecture_without_packages_is_reported(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(UpstreamError, match="has no packages for riscv"):
        take(SnapshotStore(tmp_path, "riscv", Upstream(repository.as_uri())))


def test_plain_http_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="cannot be trusted"):
        Upstream("http://example.org/termux")


def test_an_interrupted_download_is_resumed(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an HTTP server that supports ranges; the test disables the check for https."""
    asked: list[str | None] = []

    class Ranged(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = (repository / self.path.lstrip("/")).read_bytes()
            asked.append(self.headers.get("Range"))
            start = int((asked[-1] or "bytes=0-")[6:-1])
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            self.wfile.write(data[start:])

        def log_message(self, *args: object) -> None:
            pass

    monkeypatch.setattr("orchestrator.provision.termux.upstream._TRUSTED_SCHEMES", {"http"})
    with HTTPServer(("127.0.0.1", 0), Ranged) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        snapshot, _ = take(SnapshotStore(tmp_path / "cache", ARCH, Upstream(f"http://127.0.0.1:{server.server_port}")))
        package = snapshot.index["python"]
        file = next((snapshot.path / "pool").glob("python*.deb"))
        whole = file.read_bytes()
        file.unlink()
        file.with_name(file.name + ".part").write_bytes(whole[:1000])
        Upstream(f"http://127.0.0.1:{server.server_port}").download(package, file)
        server.shutdown()
    assert asked[-1] == "bytes=1000-"
    assert file.read_bytes() == whole


def test_an_unavailable_architecture_does_not_affect_the_others(tmp_path: Path, repository: Path) -> None:
    printed: list[str] = []
    packages = PackageList("", ("python",), ("bash",))
    upstream = Upstream(repository.as_uri())
    source = PackageSource(upstream, packages, tmp_path / "cache", printed.append, offline=False, dry_run=False)
    assert source.snapshots([facts(), facts(arch="i686")], keep=False).keys() == {ARCH}
    assert any("has no packages for i686" in line for line in printed)
    with pytest.raises(UpstreamError, match="has no packages for i686"):
        source.snapshots([facts(arch="i686")], keep=False)
