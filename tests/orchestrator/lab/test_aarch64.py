"""A lab of emulated arm64 phones, from bare Termux to training."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.lab.arch import emulator
from orchestrator.lab.config import Arch
from orchestrator.lab.modes import unavailable_reason
from orchestrator.lab.programs import find_program
from orchestrator.lab.spec import Mode
from tests.labs import TestLab, running_lab

# Emulation is about ten times slower, and the first run compiles mpi4py.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(5400)]

TRAINING = ("launch", "--model", "lenet", "--steps", "3", "--global-batch", "16", "--data", "synthetic", "--seed", "3")
# Float32 rounding: the NEON kernels sum in another order than the host's.
TOLERANCE = 2e-4
LIBRARIES = """
import numpy, mpi4py, platform
mpi4py.rc.initialize = False  # alone, without mpirun
from mpi4py import MPI
print(platform.machine(), MPI.Get_library_version()[:8])
"""
ELF_MACHINE = "import sys; print(int.from_bytes(open(sys.executable, 'rb').read(20)[18:], 'little'))"
AARCH64 = 183


def query(lab: TestLab, *arguments: str) -> Any:
    return json.loads(lab.clusterctl(*arguments, "--json").stdout)


def registered_formats() -> list[str]:
    return sorted(path.name for path in Path("/proc/sys/fs/binfmt_misc").glob("*"))


@pytest.fixture(scope="module")
def phones() -> Iterator[TestLab]:
    """Two phones, provisioned by the first test that needs it."""
    if find_program(emulator.EMULATOR) is None:
        pytest.skip(f"no {emulator.EMULATOR}: make setup")
    if reason := unavailable_reason(Mode.ROOT, Arch.AARCH64) and unavailable_reason(Mode.USER, Arch.AARCH64):
        pytest.skip(reason)
    before = registered_formats()
    with running_lab(2, arch="aarch64") as lab:
        yield lab
    assert registered_formats() == before, "the lab removes its binfmt_misc registration"


@pytest.fixture(scope="module")
def provisioned(phones: TestLab) -> dict[str, Any]:
    """The report of the first provision."""
    report: dict[str, Any] = query(phones, "provision")
    return report


def test_a_bare_phone_reports_aarch64(phones: TestLab) -> None:
    assert query(phones, "lab", "status")["arch"] == "aarch64"
    assert "2 aarch64 phones on" in phones.clusterctl("lab", "status").stdout
    assert phones.on("p1-01", "uname", "-m").stdout == "aarch64\n"
    assert phones.on("p1-01", "dpkg", "--print-architecture").stdout == "aarch64\n"
    assert phones.on("p1-01", "python3", check=False).returncode == 127
    if not emulator.is_registered_on_host() and platform.machine() != "aarch64":
        assert "qemu-aarch64" not in registered_formats(), "the registration is visible only inside the lab"


def test_up_with_another_architecture_is_rejected(phones: TestLab) -> None:
    done = phones.clusterctl("lab", "up", "--phones", "2", check=False)
    assert done.returncode == 2
    assert "another lab is running: 2 aarch64 phones" in " ".join(done.stderr.split())


def test_provision_installs_the_agent_and_passes_the_selftest(phones: TestLab, provisioned: dict[str, Any]) -> None:
    assert provisioned["ok"]
    for phone in provisioned["phones"]:
        assert phone["status"] == "changed"
        assert {step["step"]: step["status"] for step in phone["steps"]}["selftest"] == "changed"
    agent = ".clusterctl/agent/current"
    assert json.loads(phones.on("p1-01", "cat", f"{agent}/manifest.json").stdout)["target"] == "aarch64-android"
    assert int(phones.on("p1-01", "python3", "-c", ELF_MACHINE).stdout) == AARCH64
    assert phones.on("p1-02", "python3", "-c", LIBRARIES).stdout == "aarch64 Open MPI\n"
    again = query(phones, "provision")
    assert {phone["status"] for phone in again["phones"]} == {"ok"}


def test_training_matches_two_native_phones(phones: TestLab, provisioned: dict[str, Any]) -> None:
    emulated = query(phones, *TRAINING)
    assert (emulated["state"], emulated["step"], len(emulated["phones"])) == ("done", 3, 2)
    with running_lab(2) as lab:
        lab.clusterctl("provision")
        native = query(lab, *TRAINING)
    assert len(native["losses"]) == 3
    np.testing.assert_allclose(emulated["losses"], native["losses"], rtol=TOLERANCE)


@pytest.mark.parametrize("wire", ["fp32", "fp16", "int8"])
def test_allreduce_of_two_phones_is_correct(phones: TestLab, provisioned: dict[str, Any], wire: str) -> None:
    """The core calls MPI functions by address, which depends on the calling convention of the CPU."""
    report = query(phones, "bench", "allreduce", "--mb", "1", "--wire", wire, "--repeats", "1")
    assert report["correct"]
