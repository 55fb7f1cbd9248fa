"""A lab whose programs are a phone's: arm64, under an emulator, from bare Termux to training."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.lab.arch import emulator
from orchestrator.lab.modes import why_not
from orchestrator.lab.programs import find_program
from orchestrator.lab.shape import Arch
from orchestrator.lab.spec import Mode
from tests.labs import TestLab, running_lab

# A second of a phone's work takes ten here, and the first time one of them compiles mpi4py.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(5400)]

TRAINING = ("launch", "--model", "lenet", "--steps", "3", "--global-batch", "16", "--data", "synthetic", "--seed", "3")
# Float32 rounding: NEON's kernels add in another order than this computer's.
TOLERANCE = 2e-4
LIBRARIES = """
import numpy, mpi4py, platform
mpi4py.rc.initialize = False  # alone, without mpirun
from mpi4py import MPI
print(platform.machine(), MPI.Get_library_version()[:8])
"""
ELF_MACHINE = "import sys; print(int.from_bytes(open(sys.executable, 'rb').read(20)[18:], 'little'))"
AARCH64 = 183


def answer(lab: TestLab, *arguments: str) -> Any:
    return json.loads(lab.clusterctl(*arguments, "--json").stdout)


def formats_here() -> list[str]:
    return sorted(path.name for path in Path("/proc/sys/fs/binfmt_misc").glob("*"))


@pytest.fixture(scope="module")
def phones() -> Iterator[TestLab]:
    """Two of them, provisioned by the first test that needs it."""
    if find_program(emulator.EMULATOR) is None:
        pytest.skip(f"no {emulator.EMULATOR}: make setup")
    if reason := why_not(Mode.ROOT, Arch.AARCH64) and why_not(Mode.USER, Arch.AARCH64):
        pytest.skip(reason)
    before = formats_here()
    with running_lab(2, arch="aarch64") as lab:
        yield lab
    assert formats_here() == before, "what the lab registers with the kernel goes with the lab"


@pytest.fixture(scope="module")
def provisioned(phones: TestLab) -> dict[str, Any]:
    """What the first provision reported."""
    report: dict[str, Any] = answer(phones, "provision")
    return report


def test_a_bare_phone_is_one_of_another_kind(phones: TestLab) -> None:
    assert answer(phones, "lab", "status")["arch"] == "aarch64"
    assert "2 aarch64 phones on" in phones.clusterctl("lab", "status").stdout
    assert phones.on("p1-01", "uname", "-m").stdout == "aarch64\n"
    assert phones.on("p1-01", "dpkg", "--print-architecture").stdout == "aarch64\n"
    assert phones.on("p1-01", "python3", check=False).returncode == 127
    if not emulator.is_registered_here() and platform.machine() != "aarch64":
        assert "qemu-aarch64" not in formats_here(), "the format is the lab's alone"


def test_another_kind_of_lab_is_refused_beside_it(phones: TestLab) -> None:
    done = phones.clusterctl("lab", "up", "--phones", "2", check=False)
    assert done.returncode == 2
    assert "another lab is up: 2 aarch64 phones" in " ".join(done.stderr.split())


def test_an_empty_home_becomes_a_worker_that_passes_its_selftest(phones: TestLab, provisioned: dict[str, Any]) -> None:
    assert provisioned["ok"]
    for phone in provisioned["phones"]:
        assert phone["status"] == "changed"
        assert {step["step"]: step["status"] for step in phone["steps"]}["selftest"] == "changed"
    agent = ".clusterctl/agent/current"
    assert json.loads(phones.on("p1-01", "cat", f"{agent}/manifest.json").stdout)["target"] == "aarch64-android"
    assert int(phones.on("p1-01", "python3", "-c", ELF_MACHINE).stdout) == AARCH64
    assert phones.on("p1-02", "python3", "-c", LIBRARIES).stdout == "aarch64 Open MPI\n"
    again = answer(phones, "provision")
    assert {phone["status"] for phone in again["phones"]} == {"ok"}


def test_two_phones_train_as_two_native_ones_do(phones: TestLab, provisioned: dict[str, Any]) -> None:
    emulated = answer(phones, *TRAINING)
    assert (emulated["state"], emulated["step"], len(emulated["phones"])) == ("done", 3, 2)
    with running_lab(2) as lab:
        lab.clusterctl("provision")
        native = answer(lab, *TRAINING)
    assert len(native["losses"]) == 3
    np.testing.assert_allclose(emulated["losses"], native["losses"], rtol=TOLERANCE)


@pytest.mark.parametrize("wire", ["fp32", "fp16", "int8"])
def test_two_phones_sum_right(phones: TestLab, provisioned: dict[str, Any], wire: str) -> None:
    """The core calls MPI's functions by their addresses: as this processor wants them called."""
    report = answer(phones, "bench", "allreduce", "--mb", "1", "--wire", wire, "--repeats", "1")
    assert report["correct"]
