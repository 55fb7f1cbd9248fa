"""Files on the phone are whole or not there."""

from __future__ import annotations

import os
import random
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import PhoneConnection
from orchestrator.fleet.copy import archive, put_command, tree_command
from tests.labs import eventually
from tests.orchestrator.fleet.servers import Server

BYTES = random.Random(1).randbytes(3_000_000)  # noqa: S311


@pytest.fixture
def home(server: Server, request: pytest.FixtureRequest) -> Path:
    """A directory of the phone's for one test."""
    home: Path = server.home / request.node.name.replace("/", "_")
    home.mkdir()
    return home


def remote(home: Path, name: str) -> PurePosixPath:
    return PurePosixPath(home.name) / name


@pytest.mark.parametrize("data", [b"", b"\0\xff\n", BYTES], ids=["empty", "binary", "large"])
def test_put_and_get(phone: PhoneConnection, home: Path, data: bytes) -> None:
    target = remote(home, "new dir/-a '$b'")
    phone.put(b"old", target)
    phone.put(data, target, mode=0o750)
    assert phone.get(target, limit=len(data)) == data
    assert (home / "new dir/-a '$b'").stat().st_mode & 0o777 == 0o750
    assert names(home / "new dir") == ["-a '$b'"]


def test_put_is_private_by_default(phone: PhoneConnection, home: Path) -> None:
    phone.put(b"secret", remote(home, "key"))
    assert (home / "key").stat().st_mode & 0o777 == 0o600


def test_put_file_keeps_the_mode(phone: PhoneConnection, home: Path, tmp_path: Path) -> None:
    local = tmp_path / "tool"
    local.write_bytes(BYTES)
    local.chmod(0o755)
    phone.put_file(local, remote(home, "bin/tool"))
    assert (home / "bin/tool").read_bytes() == BYTES
    assert (home / "bin/tool").stat().st_mode & 0o777 == 0o755


def test_input_cut_off_leaves_the_old_file(phone: PhoneConnection, home: Path) -> None:
    target = remote(home, "file")
    phone.put(b"old", target)
    result = phone.run(put_command(target, size=100, mode=0o600), stdin=b"only a part")
    assert (result.rc, result.stderr) == (1, "cut off\n")
    assert (names(home), (home / "file").read_bytes()) == (["file"], b"old")


def test_get_says_what_is_wrong(phone: PhoneConnection, home: Path) -> None:
    with pytest.raises(PhoneError, match="No such file") as error:
        phone.get(remote(home, "missing"), limit=10)
    assert error.value.phase == "copy"
    phone.put(b"12345678901", remote(home, "long"))
    with pytest.raises(PhoneError, match="more than 10 bytes"):
        phone.get(remote(home, "long"), limit=10)


def test_put_where_nothing_can_be_put(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match="proc") as error:
        phone.put(b"x", PurePosixPath("/proc/nothing/here"))
    assert error.value.phase == "copy"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def make_tree(root: Path) -> Path:
    (root / "package/empty").mkdir(parents=True)
    (root / "package/module.py").write_text("print()\n")
    (root / "package/large").write_bytes(BYTES)
    (root / ("n" * 120)).write_text("a name longer than tar's old header holds")
    (root / "größe 'x'").write_text("")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "current").symlink_to("package")
    (root / "outside").symlink_to("/etc")
    return root


def listing(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    def what(path: Path) -> bytes | str | None:
        if path.is_symlink():
            return str(path.readlink())
        return path.read_bytes() if path.is_file() else None

    return {str(path.relative_to(root)): (path.lstat().st_mode, what(path)) for path in sorted(root.rglob("*"))}


def test_put_tree_copies_everything_and_follows_no_link(phone: PhoneConnection, home: Path, tmp_path: Path) -> None:
    local = make_tree(tmp_path / "tree")
    phone.put_tree(local, remote(home, "deep/tree"))
    assert listing(home / "deep/tree") == listing(local)


def test_put_tree_replaces_what_was_there(phone: PhoneConnection, home: Path, tmp_path: Path) -> None:
    (home / "tree").mkdir()
    (home / "tree/stale").write_text("")
    local = make_tree(tmp_path / "tree")
    phone.put_tree(local, remote(home, "tree"))
    assert listing(home / "tree") == listing(local)
    assert names(home) == ["tree"]


def test_a_tree_cut_between_two_files_is_not_taken(phone: PhoneConnection, home: Path, tmp_path: Path) -> None:
    whole = b"".join(archive(make_tree(tmp_path / "tree")))
    result = phone.run(tree_command(remote(home, "tree")), stdin=whole[: -3 * 512])
    assert not result.ok
    assert names(home) == []


def test_an_archive_depends_on_nothing_but_the_files(tmp_path: Path) -> None:
    first, second = make_tree(tmp_path / "first"), make_tree(tmp_path / "second")
    os.utime(second / "run.sh", (1, 1))
    assert b"".join(archive(first)) == b"".join(archive(second))


def test_a_file_that_cannot_be_read_ends_the_copy(phone: PhoneConnection, home: Path, tmp_path: Path) -> None:
    local = tmp_path / "shrinking"
    local.write_bytes(BYTES)

    class Shrinking(type(local)):  # type: ignore[misc]
        def open(self, *args: str) -> object:
            local.write_bytes(b"short")
            return local.open("rb")

    with pytest.raises(PhoneError, match="shrank while"):
        phone.put_file(Shrinking(local), remote(home, "file"))
    eventually(lambda: names(home) == [])  # the phone tidies up once it sees that nobody sends any more
