"""Which phone builds a wheel, and what happens if it fails. The phones are simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import DesiredState, Repository, SshTarget
from orchestrator.provision.engine import Event, StepStatus
from orchestrator.provision.phone_provisioner import PhoneProvisioner
from orchestrator.provision.progress import ProvisionProgress
from orchestrator.provision.steps.wheel import PyOpenClStep
from orchestrator.provision.termux.index import Index
from orchestrator.provision.wheel_builds import MPI4PY_BUILD, PYOPENCL_BUILD, WheelBuilds
from orchestrator.provision.wheels import Wheel, WheelStore
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.provision.samples import ARCH, desired_state, facts, installed, package, phone

KIND = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1", clang="21"), "python": ("cpython-314", "android")}
ABI = "cpython-314-android-openmpi-4.1.5-1"
WHEEL = Wheel(Path("mpi4py.whl"), "a" * 64)


class Store(WheelStore):
    """Builds immediately, or fails on the phones in `broken`."""

    def __init__(self, broken: Iterable[Phone] = (), cached: dict[str, Wheel] | None = None) -> None:
        self.broken = set(broken)
        self.cached = cached or {}
        self.builders: list[Phone] = []

    def find(self, abi: str) -> Wheel | None:
        return self.cached.get(abi)

    def sources(self, progress: Any) -> Any:
        return None

    def build(self, connect: Callable[[], Any], abi: str, progress: Any) -> Wheel:
        builder = connect()
        self.builders.append(builder)
        if builder in self.broken:
            raise PhoneError("clang crashed", code=ErrorCode.PACKAGE_FAILED, remedy="another phone")
        return WHEEL


def one_after_another(title: str, phones: Iterable[Phone], task: Callable[[SshTarget], None]) -> None:
    for each in phones:
        task(SshTarget(each, lambda each=each: each, lambda: None))  # type: ignore[misc]


def new_progress(*ports: int, **changes: Any) -> tuple[ProvisionProgress, list[Event]]:
    events: list[Event] = []
    progress = ProvisionProgress([phone(port) for port in ports], events.append)
    progress.facts.update({phone(port): facts(**{**KIND, **changes}) for port in ports})
    return progress, events


def test_one_phone_per_abi_builds_for_all() -> None:
    progress, _ = new_progress(1, 2, 3)
    store = Store()
    assert WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == [phone(1)]


def test_a_phone_with_a_compiler_is_preferred() -> None:
    progress, _ = new_progress(1, 2)
    progress.facts[phone(1)] = facts(packages=installed(python="3.14.6-1", openmpi="4.1.5-1"), python=KIND["python"])
    store = Store()
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == [phone(2)]


def test_a_cached_wheel_is_not_built_again() -> None:
    progress, _ = new_progress(1)
    store = Store(cached={ABI: WHEEL})
    assert WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == []


def test_nothing_is_built_if_no_phone_needs_it() -> None:
    progress, _ = new_progress(1, mpi4py=("4.1.2", "b" * 64))
    store = Store()
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == []


def test_if_a_builder_fails_the_next_phone_builds() -> None:
    progress, _ = new_progress(1, 2, 3)
    store = Store(broken=[phone(1)])
    assert WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == [phone(1), phone(2)]
    assert progress.working == (phone(1), phone(2), phone(3))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build mpi4py: clang crashed" in progress.notes


def test_if_all_builders_fail_the_waiting_phones_fail() -> None:
    progress, _ = new_progress(1, 2, 3, 4)
    store = Store(broken=[phone(port) for port in (1, 2, 3, 4)])
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == [phone(1), phone(2), phone(3)]
    assert progress.working == ()
    assert {(report.failure.step, report.failure.error) for report in progress.reports if report.failure} == {
        ("mpi4py", "clang crashed")
    }


WITHOUT = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1"), "python": KIND["python"]}


def with_compiler_offered() -> DesiredState:
    clang = package("clang", "21", 100 << 20, Depends="libllvm", **{"Installed-Size": str(200 << 10)})
    libllvm = package("libllvm", "21", 50 << 20, **{"Installed-Size": str(50 << 10)})
    index = Index([*desired_state().repositories[ARCH].index, clang, libllvm])
    return desired_state(repositories={ARCH: Repository(index, ("openmpi", "python"), "5" * 64, "http://10.77.0.1:1")})


def test_the_phone_with_most_space_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_on: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: installed_on.append(target.phone)
    )
    progress, _ = new_progress(1, 2, 3, **WITHOUT)
    for port, megabytes in ((1, 699), (2, 700), (3, None)):
        kilobytes = megabytes and megabytes << 10
        progress.facts[phone(port)] = facts(**WITHOUT, disk_free_kb=kilobytes)
    store = Store()
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (installed_on, store.builders) == ([phone(2)], [phone(2)])


def test_the_compiler_is_not_installed_if_space_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_on: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: installed_on.append(target.phone)
    )
    progress, _ = new_progress(1, 2, **WITHOUT, disk_free_kb=699 << 10)
    store = Store()
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (installed_on, store.builders) == ([], [])
    errors = {report.failure.error for report in progress.reports if report.failure}
    assert errors == {"699 MB of storage free, the compiler and its files need 700 MB"}


GPU = {**KIND, "mpi4py": ("4.1.2", "b" * 64), "opencl_devices": 1}


def test_pyopencl_is_built_on_a_phone_with_a_device() -> None:
    progress, _ = new_progress(1, 2, **GPU)
    progress.facts[phone(1)] = facts(**{**GPU, "opencl_devices": 0})
    store = Store()
    made = WheelBuilds(one_after_another, progress, store, PYOPENCL_BUILD).add_all(
        desired_state(pyopencl_version="2026.1.4")
    )
    assert (made.gpu_wheels, made.wheels, store.builders) == ({ABI: WHEEL}, {}, [phone(2)])


def test_pyopencl_is_optional() -> None:
    progress, _ = new_progress(1, 2, **GPU)
    wanted = desired_state(pyopencl_version="2026.1.4")
    made = WheelBuilds(one_after_another, progress, Store(broken=[phone(1), phone(2)]), PYOPENCL_BUILD).add_all(wanted)
    assert progress.working == (phone(1), phone(2))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build pyopencl: clang crashed" in progress.notes
    provisioner = PhoneProvisioner(SshTarget(phone(1), lambda: None, lambda: None), made, progress)  # type: ignore[arg-type,return-value]
    provisioner.finish_optional(PyOpenClStep(), provisioner.apply_optional(PyOpenClStep()), "computes slowly")
    report = progress.reports[0]
    assert report.failure is None
    assert report.warnings == ("computes slowly: no phone of the same ABI could build pyopencl",)
    assert [step.status for step in report.steps] == [StepStatus.SKIPPED]


def test_pyopencl_is_not_reinstalled() -> None:
    step, wanted = PyOpenClStep(), desired_state(pyopencl_version="2026.1.4", gpu_wheels={ABI: WHEEL})
    assert step.plan(facts(**KIND), wanted) == ()
    assert step.plan(facts(**KIND, opencl_devices=2), wanted) == ("install pyopencl 2026.1.4",)
    assert step.plan(facts(**KIND, pyopencl=("2026.1.4", "a" * 64)), wanted) == ()
    assert step.plan(facts(**KIND, pyopencl=("2025.1", "a" * 64)), wanted) == ("install pyopencl 2026.1.4",)
