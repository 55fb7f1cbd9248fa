from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import HostKeys, ensure_keypair
from orchestrator.fleet.host_keys import HostKey, changed
from tests.orchestrator.fleet.servers import loopback_phone

PHONES = [loopback_phone(number, 8022) for number in range(1, 25)]


def key(number: int) -> HostKey:
    return HostKey("ssh-ed25519", f"AAAA{number:04}")


def test_pins_survive_the_process(tmp_path: Path) -> None:
    HostKeys(tmp_path / "dir/known_hosts").accept(PHONES[0], key(1))
    again = HostKeys(tmp_path / "dir/known_hosts")
    assert (again.pinned(PHONES[0]), again.pinned(PHONES[1])) == (key(1), None)
    assert (tmp_path / "dir/known_hosts").read_text() == "[127.78.1.1]:8022 ssh-ed25519 AAAA0001 p1-01 sw1:1\n"


def test_threads_and_processes_lose_none_of_each_others_pins(tmp_path: Path) -> None:
    """Two HostKeys stand for two processes: each has its own memory of the file."""
    both = [HostKeys(tmp_path / "known_hosts") for _ in range(2)]
    threads = [
        threading.Thread(target=both[number % 2].accept, args=(phone, key(number)))
        for number, phone in enumerate(PHONES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = HostKeys(tmp_path / "known_hosts")
    assert [final.pinned(phone) for phone in PHONES] == [key(number) for number in range(len(PHONES))]


def test_a_key_belongs_to_one_phone(tmp_path: Path) -> None:
    hosts = HostKeys(tmp_path / "known_hosts")
    hosts.accept(PHONES[0], key(1))
    with pytest.raises(PhoneError, match="p1-01 sw1:1"):
        hosts.accept(PHONES[1], key(1))
    assert hosts.pinned(PHONES[1]) is None


def test_lines_of_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    foreign = "# a comment\n|1|hash= ssh-ed25519 AAAA\n@revoked * ssh-rsa AAAA\n"
    path.write_text(f"{foreign}[127.78.1.1]:8022,other ssh-ed25519 AAAA0001\n")
    hosts = HostKeys(path)
    assert hosts.pinned(PHONES[0]) == key(1)
    assert hosts.forget(PHONES[:2]) == (PHONES[0],)
    assert path.read_text() == f"{foreign}other ssh-ed25519 AAAA0001\n"
    assert hosts.forget(PHONES[:2]) == ()


def test_fingerprints_are_openssh_s(tmp_path: Path) -> None:
    public = ensure_keypair(tmp_path / "key", "x")
    kind, blob, _ = public.read_text().split()
    shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True).stdout
    assert HostKey(kind, blob).fingerprint == shown.split()[1]


def test_the_inventory_knows_better_than_this_computer(tmp_path: Path) -> None:
    hosts = HostKeys(tmp_path / "known_hosts")
    hosts.accept(PHONES[0], key(1))
    listed = replace(PHONES[0], host_key="ssh-ed25519 AAAA0002")
    assert hosts.pinned(listed) == key(2)
    assert hosts.pinned(replace(PHONES[1], host_key="ssh-ed25519 AAAA0003")) == key(3)
    assert hosts.duplicates(replace(PHONES[1], host_key="ssh-ed25519 AAAA0001")) == ("p1-01 sw1:1",)
    assert "host_key of sw1:1 in the inventory" in str(changed(listed, key(2), key(1)).remedy)
