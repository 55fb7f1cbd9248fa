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
from orchestrator.provision.wheels import MPI4PY, Wheel, WheelStore
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.provision.samples import ARCH, desired_state, facts, installed, package, phone

KIND = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1", clang="21"), "python": ("cpython-314", "android")}
ABI = "cpython-314-android-openmpi-4.1.5-1"
HONEST, TAMPERED = b"honest", b"tampered"


class Store(WheelStore):
    """Builds immediately, fails on the phones in `broken`, and gets other bytes from those in `tampered`."""

    def __init__(self, wheels: Path, broken: Iterable[Phone] = (), tampered: Iterable[Phone] = ()) -> None:
        super().__init__(wheels, wheels, MPI4PY)
        self.broken, self.tampered = set(broken), set(tampered)
        self.builders: list[Phone] = []

    def sources(self, on_message: Any) -> Any:
        return None

    def build(self, connect: Callable[[], Any], abi: str, on_message: Any) -> None:
        builder = connect()
        self.builders.append(builder)
        if builder in self.broken:
            raise PhoneError("clang crashed", code=ErrorCode.PACKAGE_FAILED, remedy="another phone")
        self.add(abi, builder.name, "mpi4py.whl", TAMPERED if builder in self.tampered else HONEST)


def one_after_another(title: str, phones: Iterable[Phone], task: Callable[[SshTarget], None]) -> None:
    for each in phones:
        task(SshTarget(each, lambda each=each: each, lambda: None))  # type: ignore[misc]


def new_progress(*ports: int, **changes: Any) -> tuple[ProvisionProgress, list[Event]]:
    events: list[Event] = []
    progress = ProvisionProgress([phone(port) for port in ports], events.append)
    progress.facts.update({phone(port): facts(**{**KIND, **changes}) for port in ports})
    return progress, events


def build_all(store: Store, progress: ProvisionProgress) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """The content and the builders of the wheels to install, by ABI."""
    made = WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(desired_state()).wheels
    return {abi: (wheel.path.read_bytes(), wheel.builders) for abi, wheel in made.items()}


def failures(progress: ProvisionProgress) -> set[str]:
    return {report.failure.error or "" for report in progress.reports if report.failure}


def test_two_phones_per_abi_build_for_all(tmp_path: Path) -> None:
    progress, _ = new_progress(1, 2, 3)
    store = Store(tmp_path)
    assert build_all(store, progress) == {ABI: (HONEST, ("p1-01", "p1-02"))}
    assert store.builders == [phone(1), phone(2)]


@pytest.mark.parametrize("tampered", [1, 2])
def test_a_wheel_that_one_phone_tampered_with_is_installed_nowhere(tmp_path: Path, tampered: int) -> None:
    progress, _ = new_progress(1, 2, 3)
    store = Store(tmp_path, tampered=[phone(tampered)])
    assert build_all(store, progress) == {}
    assert (store.find(ABI), store.builders) == (None, [phone(1), phone(2)])
    assert progress.working == ()
    (error,) = failures(progress)
    assert error.startswith("p1-01 and p1-02 built different wheels of mpi4py from the same source")


def test_a_single_phone_builds_for_itself_only(tmp_path: Path) -> None:
    alone, _ = new_progress(1)
    store = Store(tmp_path, tampered=[phone(1)])
    assert build_all(store, alone) == {ABI: (TAMPERED, ("p1-01",))}
    joined, _ = new_progress(1, 2)
    joined.facts[phone(1)] = facts(**KIND, mpi4py=("4.1.2", "b" * 64))
    assert build_all(store, joined) == {}
    assert joined.working == (phone(1),)
    assert failures(joined) != set()


def test_a_phone_that_joins_confirms_the_wheel_of_the_first(tmp_path: Path) -> None:
    alone, _ = new_progress(1)
    store = Store(tmp_path)
    build_all(store, alone)
    joined, _ = new_progress(1, 2, 3)
    joined.facts[phone(1)] = facts(**KIND, mpi4py=("4.1.2", "b" * 64))
    assert build_all(store, joined) == {ABI: (HONEST, ("p1-01", "p1-02"))}
    assert store.builders == [phone(1), phone(2)]


def test_a_phone_with_a_compiler_is_preferred(tmp_path: Path) -> None:
    progress, _ = new_progress(1, 2, 3)
    progress.facts[phone(1)] = facts(packages=installed(python="3.14.6-1", openmpi="4.1.5-1"), python=KIND["python"])
    store = Store(tmp_path)
    build_all(store, progress)
    assert store.builders == [phone(2), phone(3)]


def test_a_confirmed_wheel_is_not_built_again(tmp_path: Path) -> None:
    progress, _ = new_progress(1)
    store = Store(tmp_path)
    for builder in ("p1-08", "p1-09"):
        store.add(ABI, builder, "mpi4py.whl", HONEST)
    assert build_all(store, progress) == {ABI: (HONEST, ("p1-08", "p1-09"))}
    assert store.builders == []


def test_nothing_is_built_if_no_phone_needs_it(tmp_path: Path) -> None:
    progress, _ = new_progress(1, mpi4py=("4.1.2", "b" * 64))
    store = Store(tmp_path)
    build_all(store, progress)
    assert store.builders == []


def test_if_a_builder_fails_the_next_phone_builds(tmp_path: Path) -> None:
    progress, _ = new_progress(1, 2, 3)
    store = Store(tmp_path, broken=[phone(1)])
    assert build_all(store, progress) == {ABI: (HONEST, ("p1-02", "p1-03"))}
    assert store.builders == [phone(1), phone(2), phone(3)]
    assert progress.working == (phone(1), phone(2), phone(3))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build mpi4py: clang crashed" in progress.notes


def test_if_all_builders_fail_the_waiting_phones_fail(tmp_path: Path) -> None:
    progress, _ = new_progress(*range(1, 9))
    store = Store(tmp_path, broken=[phone(port) for port in range(1, 9)])
    build_all(store, progress)
    assert store.builders == [phone(port) for port in range(1, 7)]
    assert progress.working == ()
    assert failures(progress) == {"clang crashed"}


WITHOUT = {"packages": installed(python="3.14.6-1", openmpi="4.1.5-1"), "python": KIND["python"]}


def with_compiler_offered() -> DesiredState:
    clang = package("clang", "21", 100 << 20, Depends="libllvm", **{"Installed-Size": str(200 << 10)})
    libllvm = package("libllvm", "21", 50 << 20, **{"Installed-Size": str(50 << 10)})
    index = Index([*desired_state().repositories[ARCH].index, clang, libllvm])
    return desired_state(repositories={ARCH: Repository(index, ("openmpi", "python"), "5" * 64, "http://10.77.0.1:1")})


def test_the_phones_with_most_space_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_on: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: installed_on.append(target.phone)
    )
    progress, _ = new_progress(1, 2, 3, **WITHOUT)
    for port, megabytes in ((1, 699), (2, 700), (3, 701)):
        progress.facts[phone(port)] = facts(**WITHOUT, disk_free_kb=megabytes << 10)
    store = Store(tmp_path)
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (installed_on, store.builders) == ([phone(3), phone(2)], [phone(3), phone(2)])


def test_the_compiler_is_not_installed_if_space_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_on: list[Phone] = []
    monkeypatch.setattr(
        "orchestrator.provision.wheel_builds.install_packages", lambda target, *_: installed_on.append(target.phone)
    )
    progress, _ = new_progress(1, 2, **WITHOUT, disk_free_kb=699 << 10)
    store = Store(tmp_path)
    WheelBuilds(one_after_another, progress, store, MPI4PY_BUILD).add_all(with_compiler_offered())
    assert (installed_on, store.builders) == ([], [])
    assert failures(progress) == {"699 MB of storage free, the compiler and its files need 700 MB"}


GPU = {**KIND, "mpi4py": ("4.1.2", "b" * 64), "opencl_devices": 1}


def test_pyopencl_is_built_on_phones_with_a_device(tmp_path: Path) -> None:
    progress, _ = new_progress(1, 2, 3, **GPU)
    progress.facts[phone(1)] = facts(**{**GPU, "opencl_devices": 0})
    store = Store(tmp_path)
    made = WheelBuilds(one_after_another, progress, store, PYOPENCL_BUILD).add_all(
        desired_state(pyopencl_version="2026.1.4")
    )
    assert (list(made.gpu_wheels), made.wheels, store.builders) == ([ABI], {}, [phone(2), phone(3)])


def test_pyopencl_is_optional(tmp_path: Path) -> None:
    progress, _ = new_progress(1, 2, **GPU)
    wanted, store = desired_state(pyopencl_version="2026.1.4"), Store(tmp_path, broken=[phone(1), phone(2)])
    made = WheelBuilds(one_after_another, progress, store, PYOPENCL_BUILD).add_all(wanted)
    assert progress.working == (phone(1), phone(2))
    assert "p1-01 (sw1:1, 10.77.1.1) could not build pyopencl: clang crashed" in progress.notes
    provisioner = PhoneProvisioner(SshTarget(phone(1), lambda: None, lambda: None), made, progress)  # type: ignore[arg-type,return-value]
    provisioner.finish_optional(PyOpenClStep(), provisioner.apply_optional(PyOpenClStep()), "computes slowly")
    report = progress.reports[0]
    assert report.failure is None
    assert report.warnings == ("computes slowly: no phone of the same ABI could build pyopencl",)
    assert [step.status for step in report.steps] == [StepStatus.SKIPPED]


def test_pyopencl_is_not_reinstalled() -> None:
    step, wanted = (
        PyOpenClStep(),
        desired_state(pyopencl_version="2026.1.4", gpu_wheels={ABI: Wheel(Path("pyopencl.whl"), "a" * 64)}),
    )
    assert step.plan(facts(**KIND), wanted) == ()
    assert step.plan(facts(**KIND, opencl_devices=2), wanted) == ("install pyopencl 2026.1.4",)
    assert step.plan(facts(**KIND, pyopencl=("2026.1.4", "a" * 64)), wanted) == ()
    assert step.plan(facts(**KIND, pyopencl=("2025.1", "a" * 64)), wanted) == ("install pyopencl 2026.1.4",)
