"""From bare phones to workers, on virtual phones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.provision.resources import read_script
from tests.labs import TestLab, namespaces_missing, running_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(namespaces_missing()), reason=f"full disks and Termux's paths: {namespaces_missing()}"),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[TestLab]:
    with running_lab(5, 2) as lab:
        yield lab


def provision(lab: TestLab, *flags: str, rc: int = 0) -> dict[str, Any]:
    done = lab.clusterctl("provision", "--json", *flags, check=False)
    assert done.returncode == rc, done.stderr + done.stdout
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {phone["phone"]: phone["status"] for phone in document["phones"]}


def failures(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        phone["phone"]: {**step, "port": phone["port"]}
        for phone in document["phones"]
        for step in phone["steps"]
        if step["status"] == "failed"
    }


# The tests of this module depend on each other and run in this order.


def test_an_untrusted_repository_is_refused_before_anything_changes(lab: TestLab) -> None:
    refused = lab.clusterctl("provision", "--upstream", "http://example.org/termux", check=False)
    assert refused.returncode == 2
    assert "neither https:// nor file://" in refused.stderr


def test_a_dry_run_prints_the_plan_and_changes_nothing(lab: TestLab) -> None:
    before = lab.on("p1-01", "find", "/data/data/com.termux/files", "-newermt", "@0", "-printf", "%p %T@\n").stdout
    done = lab.clusterctl("provision", "--dry-run")
    assert "sw1:1-3,sw2:1-2 would install python, python-numpy, python-pip, openmpi, termux-api" in done.stdout
    assert "sw1:1-3,sw2:1-2 would configure sshd: keys only" in done.stdout
    after = lab.on("p1-01", "find", "/data/data/com.termux/files", "-newermt", "@0", "-printf", "%p %T@\n").stdout
    assert after == before


def test_four_faults_in_one_run_leave_the_fifth_phone_ready(lab: TestLab) -> None:
    lab.clusterctl("lab", "power", "p1-01", "off")
    lab.clusterctl("lab", "set", "p1-02", "hostkey=new")  # the dry run has pinned the old one
    lab.clusterctl("lab", "set", "p1-03", "disk=full")
    lab.clusterctl("lab", "set", "p2-01", "mirror=down")
    document = provision(lab, rc=1)
    assert statuses(document)["p2-02"] == "changed"
    found = failures(document)
    assert found.keys() == {"p1-01", "p1-02", "p1-03", "p2-01"}
    expected = {
        "p1-01": ("sw1:1", "tcp", "no answer", "check power and cable at sw1:1"),
        "p1-02": ("sw1:2", "hostkey", "host key changed", "clusterctl hosts forget p1-02"),
        "p1-03": ("sw1:3", "preflight", "MB of storage free", "free space on the phone"),
        "p2-01": ("sw2:1", "packages", "cannot reach this computer's package mirror", "Wi-Fi"),
    }
    for phone, (port, step, cause, remedy) in expected.items():
        failure = found[phone]
        assert (failure["port"], failure["step"]) == (port, step), failure
        assert cause in failure["error"]
        assert remedy in failure["remedy"]


def test_failed_phones_succeed_once_the_causes_are_fixed(lab: TestLab) -> None:
    lab.clusterctl("lab", "power", "p1-01", "on")
    lab.clusterctl("hosts", "forget", "p1-02")
    lab.clusterctl("lab", "set", "p1-03", "disk=free")
    lab.clusterctl("lab", "set", "p2-01", "mirror=up")
    document = provision(lab, "--limit", "@failed")
    assert set(statuses(document).values()) == {"changed"}
    assert len(document["phones"]) == 4


def test_a_second_run_changes_nothing(lab: TestLab) -> None:
    provision(lab)  # the fifth phone gets the host keys of the others
    again = lab.clusterctl("provision")
    assert again.stdout == "5 phones ready, nothing to change\n"


def test_phones_log_in_to_each_other_only_with_their_own_key(lab: TestLab) -> None:
    """The key is accepted, but gives no commands except those of a dataset transfer."""
    accepted = lab.on("p1-01", "ssh", "10.77.2.2", "id", check=False)
    assert (accepted.returncode, accepted.stderr.split()[:3]) == (126, ["this", "key", "may"])
    config = lab.on("p1-01", "sshd", "-T").stdout
    assert "passwordauthentication no" in config
    assert "disableforwarding yes" in config
    lab.on("p1-01", "mv", ".ssh/clusterctl_ed25519", ".ssh/away")
    refused = lab.on("p1-01", "ssh", "10.77.2.2", "id", check=False)
    lab.on("p1-01", "mv", ".ssh/away", ".ssh/clusterctl_ed25519")
    assert refused.returncode == 255


def test_manual_changes_are_reverted(lab: TestLab) -> None:
    lab.on("p1-02", "bash", "-c", "echo 'rogue = 1' >> ~/.openmpi/mca-params.conf")
    lab.on("p1-02", "bash", "-c", "echo '# rogue' >> ~/.clusterctl/agent/current/phone_agent/__init__.py")
    lab.on("p1-02", "bash", "-c", "echo 'ssh-ed25519 AAAAfriend friend' >> ~/.ssh/authorized_keys")
    document = provision(lab, "--limit", "p1-02")
    changes = [change for step in document["phones"][0]["steps"] for change in step.get("changes", [])]
    assert any("Open MPI" in change for change in changes)
    assert any("repair agent" in change for change in changes)
    assert not any("authorized_keys" in change for change in changes)
    assert "AAAAfriend" in lab.on("p1-02", "cat", ".ssh/authorized_keys").stdout
    lab.on("p1-02", "mpirun", "-np", "1", "python3", "-c", "import mpi4py.MPI, numpy")


@pytest.mark.parametrize(
    ("settings", "key", "code"),
    [("Nonsense yes", "ssh-ed25519", 3), ("PasswordAuthentication yes", "ssh-ed25519", 4), ("", "no such key", 5)],
)
def test_sshd_settings_that_would_lock_us_out_are_refused(lab: TestLab, settings: str, key: str, code: int) -> None:
    drop_in = "/data/data/com.termux/files/usr/etc/ssh/sshd_config.d/50-clusterctl.conf"
    before = lab.on("p2-01", "cat", drop_in).stdout
    feed = 'printf "%s\\n" "$1" | bash -c "$0" clusterctl 999999 "$2"'
    refused = lab.on("p2-01", "bash", "-c", feed, read_script("sshd-activate"), settings, key, check=False)
    assert refused.returncode == code
    assert lab.on("p2-01", "cat", drop_in).stdout == before


def test_without_upstream_the_latest_snapshot_is_used_with_a_note(lab: TestLab) -> None:
    release = lab.directory / "upstream/dists/stable/Release"
    away = release.rename(release.with_name("away"))
    try:
        done = lab.clusterctl("provision")
    finally:
        away.rename(release)
    assert "using packages of the earlier snapshot" in done.stderr
    assert "5 phones ready, nothing to change" in done.stdout
