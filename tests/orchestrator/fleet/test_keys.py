from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.fleet import Fleet, ensure_keypair
from orchestrator.fleet.keys import load_private_key
from orchestrator.fleet.network import DirectNetwork
from orchestrator.paths import ClusterState


def test_a_pair_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new/id_ed25519"
    public = ensure_keypair(path, "clusterctl rack")
    assert public.read_text().startswith("ssh-ed25519 ")
    assert public.read_text().endswith(" clusterctl rack\n")
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    assert ensure_keypair(path, "again") == public
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_two_first_commands_at_the_same_time_get_the_same_pair(tmp_path: Path) -> None:
    """Without a lock, the private key of one and the public key of the other may stay."""
    path = tmp_path / "new/id_ed25519"
    with ThreadPoolExecutor(8) as pool:
        shown = list(pool.map(lambda number: ensure_keypair(path, f"{number}").read_text(), range(8)))
    assert len(set(shown)) == 1
    done = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True)
    assert done.stdout == shown[0]


def test_a_missing_key_is_told_before_anything_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    with pytest.raises(UsageError, match="no login key"):
        Fleet([], ClusterState("empty"), DirectNetwork())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "format_"), [("ed25519", "RFC4716"), ("rsa", "PEM"), ("rsa", "RFC4716")])
def test_a_key_with_a_passphrase_is_refused(tmp_path: Path, kind: str, format_: str) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-m", format_, "-N", "secret", "-f", path], check=True)
    with pytest.raises(UsageError, match="passphrase"):
        load_private_key(path)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(UsageError, match="cannot read"):
        load_private_key(tmp_path / "key")
