"""sshd, shells and services of the simulated Termux, as seen by a session."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.orchestrator.lab.termux_phone import Phone, bare_phone, open_directory, served_mirror


@pytest.fixture(scope="module")
def phone() -> Iterator[Phone]:
    with open_directory() as directory, served_mirror(directory / "mirror") as url:
        found = bare_phone(directory / "phone")
        found.use_mirror(url)
        yield found


class Session:
    """The host's ssh client, connected to a phone."""

    def __init__(self, port: int, key: Path) -> None:
        self.port = port
        quiet = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
        }
        self._options = [f"-o{name}={value}" for name, value in quiet.items()]
        self._options += [f"-oPort={port}", f"-oIdentityFile={key}", "-F", "/dev/null"]

    def ssh(self, user: str, command: str, *flags: str) -> str:
        return self._run(["ssh", *self._options, *flags, f"{user}@127.0.0.1", command])

    def sftp(self, batch: str) -> str:
        return self._run(["sftp", *self._options, "-b", "-", "anyone@127.0.0.1"], batch)

    def _run(self, argv: list[str], text: str = "") -> str:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def session(phone: Phone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with _sshd(phone, tmp_path_factory.mktemp("keys") / "key") as found:
        yield found


@contextmanager
def _sshd(phone: Phone, key: Path, **changes: str) -> Iterator[Session]:
    """Run the phone's sshd, which accepts `key`."""
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", str(key)], check=True)
    with (phone.home / ".ssh/authorized_keys").open("a") as authorized:
        authorized.write(key.with_suffix(".pub").read_text())
    port = _free_port()
    argv = [str(phone.prefix / "bin/sshd"), "-D", "-e", "-p", str(port)]
    environment = {**phone.environment(), **changes}
    sshd = subprocess.Popen(argv, env=environment, cwd="/", stderr=subprocess.DEVNULL, **phone.identity())
    try:
        _await(lambda: _is_listening(port))
        yield Session(port, key)
    finally:
        sshd.terminate()
        sshd.wait()


def test_any_login_name_maps_to_the_phone_user(session: Session, phone: Phone) -> None:
    for user in ("termux", "u0_a1", "nobody-knows-me"):
        assert session.ssh(user, "id -u; pwd").split() == [str(phone.uid), str(phone.home)]


def test_a_session_inherits_the_environment_of_sshd(phone: Phone, tmp_path: Path) -> None:
    path = str(phone.prefix / "bin") + ":/system/bin"
    with _sshd(phone, tmp_path / "key", PATH=path, TERMUX_VERSION="0.119.0", SECRET="no") as session:  # noqa: S106
        seen = dict(line.split("=", 1) for line in session.ssh("x", "env").splitlines())
    assert seen["PATH"] == path
    assert seen["PREFIX"] == str(phone.prefix)
    assert seen["TMPDIR"] == str(phone.prefix / "tmp")
    assert seen["TERMUX_VERSION"] == "0.119.0"
    assert seen["SHELL"] == str(phone.prefix / "bin/bash")
    assert seen["LD_PRELOAD"] == str(phone.prefix / "lib/libtermux-exec-ld-preload.so")
    assert {"SECRET", "MAIL"}.isdisjoint(seen)


def test_a_command_reads_no_profile(session: Session, phone: Phone) -> None:
    (phone.home / ".bashrc").write_text("export FROM_BASHRC=1\n")
    (phone.home / ".bash_profile").write_text("export FROM_PROFILE=1\n")
    assert "FROM_" not in session.ssh("x", "env")


def test_a_session_can_have_a_terminal(session: Session) -> None:
    assert session.ssh("x", "tty", "-tt").startswith("/dev/pts/")


def test_sftp_transfers_files(session: Session, phone: Phone, tmp_path: Path) -> None:
    (tmp_path / "sent").write_text("over the wire")
    session.sftp(f"put {tmp_path}/sent received\n")
    assert (phone.home / "received").read_text() == "over the wire"


def test_penalty_options_are_accepted_by_an_older_sshd(phone: Phone) -> None:
    drop_in = phone.prefix / "etc/ssh/sshd_config.d/cluster.conf"
    drop_in.write_text("PerSourcePenaltyExemptList 10.77.0.0/16\nPasswordAuthentication no\n")
    assert "passwordauthentication no" in phone.ok("sshd -T")
    drop_in.write_text("NoSuchOption yes\n")
    assert phone.run("sshd -t").returncode != 0
    drop_in.unlink()


def test_ssh_on_the_phone_reads_its_config_and_connects(session: Session, phone: Phone) -> None:
    phone.ok(
        "ssh-keygen -q -N '' -t ed25519 -f ~/.ssh/id_ed25519 && cat ~/.ssh/id_ed25519.pub >>~/.ssh/authorized_keys"
    )
    phone.ok(f"printf 'Host other\\n HostName 127.0.0.1\\n Port {session.port}\\n' >~/.ssh/config")
    phone.ok("ssh -o StrictHostKeyChecking=accept-new other touch been-here && test -f been-here")
    assert f"[127.0.0.1]:{session.port}" in phone.ok("cat ~/.ssh/known_hosts")
    phone.ok("echo copied >there && scp -q there other:back && grep -qx copied back")


def test_interpreters_are_found_in_the_prefix(phone: Phone) -> None:
    """As with termux-exec. The host has /bin/sh, so the test uses an interpreter that exists only on the phone."""
    phone.ok("ln -s bash $PREFIX/bin/only-on-phones")
    phone.ok("printf '#!/usr/bin/only-on-phones -u\\necho \"ran with $1\"\\n' >script && chmod +x script")
    assert phone.ok("./script argument") == "ran with argument\n"
    assert phone.ok("env ./script argument") == "ran with argument\n"
    lost = phone.run("env -u LD_PRELOAD bash -c ./script")
    assert lost.returncode in {126, 127}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give the phone an unused uid")
def test_the_phone_user_has_a_name_without_a_passwd_entry(phone: Phone) -> None:
    assert phone.ok("whoami") == "u0_a123\n"
    assert phone.ok("env -u LD_PRELOAD id -un || echo nameless") == "10123\nnameless\n"


def test_services_start_stop_and_restart_after_a_crash(phone: Phone) -> None:
    phone.ok("apt-get update && apt-get -y install termux-services")
    phone.ok("mkdir -p $PREFIX/var/service/beat && touch $PREFIX/var/service/beat/down")
    phone.ok("cd $PREFIX/var/service/beat && printf '#!%s/bin/sh\\nexec sleep 1000\\n' $PREFIX >run && chmod +x run")
    assert "unable to change to service directory" in phone.run("sv status beat").stdout
    services = {"SVDIR": str(phone.prefix / "var/service"), "LOGDIR": str(phone.prefix / "var/log")}
    phone.ok("service-daemon start", **services)
    try:
        _await(lambda: phone.run("sv status beat", **services).stdout.startswith("down:"))
        assert phone.ok("sv-enable beat", **services).startswith("run: beat: (pid ")
        first = phone.ok("cat $SVDIR/beat/supervise/pid", **services)
        phone.ok("kill -9 $(cat $SVDIR/beat/supervise/pid)", **services)
        _await(lambda: phone.run("cat $SVDIR/beat/supervise/pid", **services).stdout.strip() not in {"", first.strip()})
        assert phone.ok("sv-disable beat", **services) == "down: beat\n"
    finally:
        phone.ok("service-daemon stop", **services)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "timed out after 30 s"
        time.sleep(0.1)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
