"""Datasets on four virtual phones on two switches: real ssh from phone to phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.labs import TestLab, eventually
from tests.orchestrator.launch.idx import write_idx

pytestmark = pytest.mark.lab

SHARD = ".clusterctl/data/specks/train-00000.shard"


def push(lab: TestLab, *flags: str, rc: int = 0) -> dict[str, Any]:
    done = lab.clusterctl("data", "push", "specks", *flags, "--json", check=False)
    assert done.returncode == rc, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def statuses(found: dict[str, Any]) -> dict[str, str]:
    return {phone["phone"]: phone["status"] for phone in found["phones"]}


def test_pushed_resumed_and_mended(provisioned_lab4: TestLab, tmp_path: Path) -> None:
    """One phone is off, then comes; another one's file rots; only what is missing or wrong travels."""
    lab = provisioned_lab4
    lab.clusterctl("data", "remove", "specks", check=False)
    write_idx(tmp_path / "specks", train=2000, test=100)
    lab.clusterctl("data", "add", "specks", str(tmp_path / "specks"))
    lab.clusterctl("lab", "power", "p1-01", "off")
    try:
        first = push(lab, rc=1)
    finally:
        lab.clusterctl("lab", "power", "p1-01", "on")
        eventually(lambda: lab.clusterctl("status", check=False).returncode == 0)
    assert statuses(first) == {"p1-01": "unreachable", "p1-02": "ok", "p2-01": "ok", "p2-02": "ok"}
    assert first["phones"][0]["port"] == "sw1:1"
    size = first["phones"][1]["bytes"]
    assert first["sent_bytes"] == 2 * size, "each byte once a switch"
    lab.on("p2-02", "bash", "-c", f"printf x | dd of={SHARD} bs=1 seek=1000 conv=notrunc status=none")
    second = push(lab)
    assert set(statuses(second).values()) == {"ok"}
    sent = {phone["phone"]: phone["bytes"] for phone in second["phones"]}
    assert sent["p1-01"] == size
    assert (sent["p1-02"], sent["p2-01"]) == (0, 0)
    assert 0 < sent["p2-02"] < size
    third = push(lab)
    assert third["sent_bytes"] == 0
    sums = {lab.on(phone, "sha256sum", SHARD).stdout.split()[0] for phone in sent}
    assert len(sums) == 1


def test_a_phone_that_cannot_pass_it_on_does_not_keep_it_from_the_others(
    provisioned_lab4: TestLab, tmp_path: Path
) -> None:
    """p1-01 is first in its chain and cannot log in to p1-02: another round brings p1-02 its files from here."""
    lab = provisioned_lab4
    lab.clusterctl("data", "remove", "specks", check=False)
    write_idx(tmp_path / "specks", train=1500, test=100)
    lab.clusterctl("data", "add", "specks", str(tmp_path / "specks"))
    lab.on("p1-01", "mv", ".ssh/clusterctl_ed25519", ".ssh/away")
    try:
        found = push(lab)
    finally:
        lab.on("p1-01", "mv", ".ssh/away", ".ssh/clusterctl_ed25519")
    assert set(statuses(found).values()) == {"ok"}
    assert found["sent_bytes"] == 3 * found["phones"][0]["bytes"]
    assert push(lab)["sent_bytes"] == 0
    lab.clusterctl("data", "remove", "specks", "--from-phones")
    assert "specks" not in lab.on("p2-01", "ls", ".clusterctl/data").stdout.split()
    assert lab.clusterctl("data", "remove", "specks", "--from-phones", check=False).returncode == 2, "nobody has it"
