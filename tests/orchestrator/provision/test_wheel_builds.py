"""Who builds mpi4py, and what happens when a builder cannot. The phones here only answer or fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import DesiredState, Repository
from orchestrator.provision.engine import StepStatus
from orchestrator.provision.events import Event
from orchestrator.provision.phone_provisioner import PhoneProvisioner
from orchestrator.provision.progress import ProvisionProgress
from orchestrator.provision.steps.pyopencl import PyOpenClStep
from orchestrator.provision.target import SshTarget
from orchestrator.provision.termux.index import Index
from orchestrator.provision.wheel_builds import MPI4PY_BUILD, PYOPENCL_BUILD, WheelBuilds
from orchestrator.provision.wheels import Wheel, WheelStore
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.provision.samples import ARCH, desired_state, facts, installed, package, phone

KIND = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1", clang="21"), "python": ("cpython-314", "android")}
ABI = "cpython-314-android-openmpi-4.1.5-1"
WHEEL = Wheel(Path("mpi4py.whl"), "a" * 64)


class Store(WheelStore):
    """Builds at once, or not at all, as the test says."""

    def __init__(self, broken: Iterable[Phone] = (), before: dict[str, Wheel] | None = None) -> None:
        self.broken = set(broken)
        self.before = before or {}
        self.builders: list[Phone] = []

    def find(self, abi: str) -> Wheel | None:
        return self.before.get(abi)

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


def progress(*ports: int, **changes: Any) -> tuple[ProvisionProgress, list[Event]]:
    events: list[Event] = []
    known = ProvisionProgress([phone(port) for port in ports], events.append)
    known.facts.update({phone(port): facts(**{**KIND, **changes}) for port in ports})
    return known, events


def test_one_phone_of_a_kind_builds_for_all() -> None:
    known, _ = progress(1, 2, 3)
    store = Store()
    assert WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == [phone(1)]


def test_the_one_with_a_compiler_is_asked_first() -> None:
    known, _ = progress(1, 2)
    known.facts[phone(1)] = facts(packages=installed(python="3.14.6-1", openmpi="4.1.5-1"), python=KIND["python"])
    store = Store()
    WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == [phone(2)]


def test_what_was_built_before_is_not_built_again() -> None:
    known, _ = progress(1)
    store = Store(before={ABI: WHEEL})
    assert WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == []


def test_nobody_builds_when_nobody_waits() -> None:
    known, _ = progress(1, mpi4py=("4.1.2", "b" * 64))
    store = Store()
    WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == []


def test_when_a_builder_fails_the_next_one_is_asked_and_nobody_fails() -> None:
    known, _ = progress(1, 2, 3)
    store = Store(broken=[phone(1)])
    assert WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state()).wheels == {ABI: WHEEL}
    assert store.builders == [phone(1), phone(2)]
    assert known.working == (phone(1), phone(2), phone(3))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build mpi4py: clang crashed" in known.notes


def test_when_all_builders_fail_the_phones_that_wait_fail_with_the_cause() -> None:
    known, _ = progress(1, 2, 3, 4)
    store = Store(broken=[phone(port) for port in (1, 2, 3, 4)])
    WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(desired_state())
    assert store.builders == [phone(1), phone(2), phone(3)]
    assert known.working == ()
    assert {(report.failure.step, report.failure.error) for report in known.reports if report.failure} == {
        ("mpi4py", "clang crashed")
    }


WITHOUT = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1"), "python": KIND["python"]}


def with_compiler_offered() -> DesiredState:
    clang = package("clang", "21", 100 << 20, Depends="libllvm", **{"Installed-Size": str(200 << 10)})
    libllvm = package("libllvm", "21", 50 << 20, **{"Installed-Size": str(50 << 10)})
    index = Index([*desired_state().repositories[ARCH].index, clang, libllvm])
    return desired_state(repositories={ARCH: Repository(index, ("openmpi", "python"), "5" * 64, "http://10.77.0.1:1")})


def test_the_one_with_most_space_gets_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: given.append(target.phone)
    )
    known, _ = progress(1, 2, 3, **WITHOUT)
    for port, megabytes in ((1, 699), (2, 700), (3, None)):
        kilobytes = megabytes and megabytes << 10
        known.facts[phone(port)] = facts(**WITHOUT, disk_free_kb=kilobytes)
    store = Store()
    WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (given, store.builders) == ([phone(2)], [phone(2)])


def test_a_phone_is_not_filled_up_with_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: given.append(target.phone)
    )
    known, _ = progress(1, 2, **WITHOUT, disk_free_kb=699 << 10)
    store = Store()
    WheelBuilds(one_after_another, known, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (given, store.builders) == ([], [])
    errors = {report.failure.error for report in known.reports if report.failure}
    assert errors == {"699 MB of storage free, the compiler and its files need 700 MB"}


GPU = {**KIND, "mpi4py": ("4.1.2", "b" * 64), "opencl_devices": 1}


def test_pyopencl_is_built_where_there_is_a_device() -> None:
    known, _ = progress(1, 2, **GPU)
    known.facts[phone(1)] = facts(**{**GPU, "opencl_devices": 0})
    store = Store()
    made = WheelBuilds(one_after_another, known, store, PYOPENCL_BUILD).add_all(
        desired_state(pyopencl_version="2026.1.4")
    )
    assert (made.gpu_wheels, made.wheels, store.builders) == ({ABI: WHEEL}, {}, [phone(2)])


def test_a_phone_can_do_without_pyopencl() -> None:
    known, _ = progress(1, 2, **GPU)
    wanted = desired_state(pyopencl_version="2026.1.4")
    made = WheelBuilds(one_after_another, known, Store(broken=[phone(1), phone(2)]), PYOPENCL_BUILD).add_all(wanted)
    assert known.working == (phone(1), phone(2))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build pyopencl: clang crashed" in known.notes
    provisioner = PhoneProvisioner(SshTarget(phone(1), lambda: None, lambda: None), made, known)  # type: ignore[arg-type,return-value]
    provisioner.finish_optional(PyOpenClStep(), provisioner.apply_optional(PyOpenClStep()), "computes slowly")
    report = known.reports[0]
    assert report.failure is None
    assert report.warnings == ("computes slowly: no phone of the same ABI could build pyopencl",)
    assert [step.status for step in report.steps] == [StepStatus.SKIPPED]


def test_pyopencl_is_left_alone_where_it_is_already() -> None:
    step, wanted = PyOpenClStep(), desired_state(pyopencl_version="2026.1.4", gpu_wheels={ABI: WHEEL})
    assert step.plan(facts(**KIND), wanted) == ()
    assert step.plan(facts(**KIND, opencl_devices=2), wanted) == ("install pyopencl 2026.1.4",)
    assert step.plan(facts(**KIND, pyopencl=("2026.1.4", "a" * 64)), wanted) == ()
    assert step.plan(facts(**KIND, pyopencl=("2025.1", "a" * 64)), wanted) == ("install pyopencl 2026.1.4",)
