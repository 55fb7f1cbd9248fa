"""The scripts for phones, run by bash in a temporary directory."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.provision.bundle import Target, build_bundle
from orchestrator.provision.files import ManagedFile, tar_archive
from orchestrator.provision.resources import read_script


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "usr/tmp").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def bash(home: Path, name: str, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "HOME": str(home), "PREFIX": str(home.parent / "usr")}
    command = ["bash", "-c", read_script(name), "clusterctl", *args]
    return subprocess.run(command, env=environment, cwd=home, input=stdin, capture_output=True, check=False, timeout=60)


def test_files_are_installed_with_their_modes(home: Path) -> None:
    files = (ManagedFile("~/.ssh/key", b"one", 0o600), ManagedFile("$PREFIX/etc/deep/conf", b"two", 0o644))
    done = bash(home, "install-files", "600", files[0].path, "644", files[1].path, stdin=tar_archive(files))
    assert done.returncode == 0, done.stderr
    key, conf = home / ".ssh/key", home.parent / "usr/etc/deep/conf"
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (b"one", 0o600)
    assert (conf.read_bytes(), conf.stat().st_mode & 0o777) == (b"two", 0o644)
    assert (home / ".ssh").stat().st_mode & 0o777 == 0o700
    assert [path for path in home.parent.rglob("*clusterctl*")] == []  # noqa: C416  says what must not be left


def test_files_are_written_only_to_allowed_directories(home: Path) -> None:
    refused = bash(home, "install-files", "600", "/etc/passwd", stdin=tar_archive((ManagedFile("x", b"x"),)))
    assert refused.returncode == 2


def release(home: Path, tmp_path: Path, content: str) -> tuple[str, str]:
    """Write a release to the incoming directory; returns its id and the hash of its files."""
    incoming = home / ".clusterctl/agent/releases/incoming"
    bundle = build_bundle(Target.HOST, incoming)
    (incoming / "extra.py").write_text(content)
    listing = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    tree = subprocess.run(["bash", "-c", listing], cwd=incoming, check=True, capture_output=True, text=True).stdout
    return f"{bundle.id}-{content}", tree.split()[0]


def test_a_release_is_activated_and_the_previous_one_kept(home: Path, tmp_path: Path) -> None:
    names = []
    for content in ("one", "two", "three"):
        name, tree = release(home, tmp_path, content)
        done = bash(home, "activate-agent", name, tree)
        assert done.returncode == 0, done.stderr
        names.append(name)
    agent = home / ".clusterctl/agent"
    assert (agent / "current").readlink() == Path("releases") / names[2]
    assert (agent / "previous").readlink() == Path("releases") / names[1]
    assert sorted(path.name for path in (agent / "releases").iterdir()) == sorted(names[1:])
    assert (agent / "current/extra.py").read_text() == "three"


def test_host_and_phone_compute_the_same_bundle_hash(home: Path) -> None:
    bundle = build_bundle(Target.HOST, home / ".clusterctl/agent/releases/incoming")
    done = bash(home, "activate-agent", bundle.id, bundle.tree_sha256)
    assert done.returncode == 0, done.stderr


def test_a_release_with_another_hash_is_refused_and_the_current_one_stays(home: Path, tmp_path: Path) -> None:
    name, tree = release(home, tmp_path, "one")
    bash(home, "activate-agent", name, tree)
    release(home, tmp_path, "two")
    (home / ".clusterctl/agent/releases/incoming/extra.py").write_text("tampered")
    refused = bash(home, "activate-agent", "other", tree)
    assert refused.returncode == 3
    assert b"arrived damaged" in refused.stderr
    assert (home / ".clusterctl/agent/current").readlink() == Path("releases") / name
    assert not (home / ".clusterctl/agent/releases/incoming").exists()


def test_a_job_survives_its_parent_and_reports_its_exit_code(home: Path) -> None:
    started = bash(home, "job", "start", "work", 'sleep 0.2; echo "did $1"; exit 7', "a b")
    assert started.stdout == b"started\n"
    assert bash(home, "job", "wait", "work", "20").stdout == b"ended 7\ndid a b\n"


def test_a_running_job_is_not_started_twice_and_can_be_stopped(home: Path) -> None:
    bash(home, "job", "start", "work", "sleep 600")
    assert bash(home, "job", "start", "work", "echo second").stdout == b"already_running\n"
    assert bash(home, "job", "wait", "work", "0").stdout == b"running\n"
    pid = int((home / ".clusterctl/jobs/work.pid").read_text().split()[0])
    assert bash(home, "job", "stop", "work").returncode == 0
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.1)
    assert bash(home, "job", "wait", "work", "0").stdout == b"lost\n"


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own process group, like a job, whose name imitates the rest of its stat line."""
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/usr/bin/sleep")
    with subprocess.Popen([program, "600"], start_new_session=True) as process:
        yield process
        process.kill()


def identity(pid: int) -> list[str]:
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return [str(pid), started, Path("/proc/sys/kernel/random/boot_id").read_text().strip()]


@pytest.mark.parametrize(("field", "other"), [(1, "1"), (2, "another-boot"), (None, "")])
def test_a_reused_pid_is_not_a_job(
    home: Path, bystander: subprocess.Popen[bytes], field: int | None, other: str
) -> None:
    known = identity(bystander.pid)
    if field is None:
        known = known[:1]
    else:
        known[field] = other
    jobs = home / ".clusterctl/jobs"
    jobs.mkdir(parents=True)
    (jobs / "work.pid").write_text(" ".join(known) + "\n")
    assert bash(home, "job", "wait", "work", "20").stdout == b"lost\n"
    assert bash(home, "job", "stop", "work").returncode == 0
    assert bystander.poll() is None
    assert bash(home, "job", "start", "work", "true").stdout == b"started\n"
    assert bash(home, "job", "wait", "work", "20").stdout == b"ended 0\n"


def test_a_job_is_identified_by_its_start_time(home: Path, bystander: subprocess.Popen[bytes]) -> None:
    jobs = home / ".clusterctl/jobs"
    jobs.mkdir(parents=True)
    (jobs / "work.pid").write_text(" ".join(identity(bystander.pid)) + "\n")
    assert bash(home, "job", "wait", "work", "0").stdout == b"running\n"
    assert bash(home, "job", "stop", "work").returncode == 0
    assert bystander.wait(10) == -signal.SIGTERM


def test_facts_contain_modes_and_hashes_of_files(home: Path) -> None:
    (home / "one").write_text("1\n")
    (home / "one").chmod(0o640)
    (home.parent / "usr/two").write_text("2\n")
    (home.parent / "usr/two").chmod(0o600)
    output = bash(home, "facts", "~/one", "~/missing", "$PREFIX/two").stdout.decode()
    files = [line.split("\t")[1:] for line in output.splitlines() if line.startswith("file\t")]
    sums = [hashlib.sha256(text).hexdigest() for text in (b"1\n", b"2\n")]
    assert files == [["~/one", "640", sums[0]], ["$PREFIX/two", "600", sums[1]]]


def test_facts_are_complete_even_if_nothing_is_installed(home: Path) -> None:
    output = bash(home, "facts", "~/missing").stdout.decode()
    assert output.startswith("begin\t1\n")
    assert output.endswith("end\t1\n")
