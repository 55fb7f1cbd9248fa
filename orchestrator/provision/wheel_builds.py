"""Wheels that phones build: two phones per ABI build mpi4py, and pyopencl if they have a GPU, for all phones like them.

A phone that is the only one of its ABI builds for itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import DesiredState, ProvisionStep, SshTarget
from orchestrator.provision.progress import ProvisionProgress
from orchestrator.provision.steps.packages import install_packages, space_to_add
from orchestrator.provision.steps.wheel import Mpi4pyStep, PyOpenClStep
from orchestrator.provision.termux_facts import TermuxFacts
from orchestrator.provision.wheels import REQUIRED_BUILDS, Wheel, WheelMismatchError, WheelStore
from phone_agent.contract.errors import ErrorCode

_BUILD_SPACE: Final = 300 << 20  # for the source and temporary files of the compiler


@dataclass(frozen=True)
class WheelBuild:
    """A module that phones build."""

    step: ProvisionStep  # installs it
    wheels: Literal["wheels", "gpu_wheels"]  # the field of DesiredState that holds its wheels
    tools: Literal["builder", "gpu_builder"]  # the field of PackageList with the packages needed to build it
    max_rounds: int  # of builds per ABI, until two phones have built the same wheel
    required: bool  # a phone without it cannot work


MPI4PY_BUILD: Final = WheelBuild(Mpi4pyStep(), "wheels", "builder", 3, required=True)
PYOPENCL_BUILD: Final = WheelBuild(PyOpenClStep(), "gpu_wheels", "gpu_builder", 2, required=False)

RunStage = Callable[[str, Iterable[Phone], Callable[[SshTarget], None]], None]


class WheelBuilds:
    def __init__(self, run_stage: RunStage, progress: ProvisionProgress, store: WheelStore, build: WheelBuild) -> None:
        self._run_stage = run_stage
        self._progress = progress
        self._store = store
        self._build = build
        self._errors: dict[str, PhoneError] = {}
        self._tried: set[Phone] = set()

    def add_cached(self, desired: DesiredState) -> DesiredState:
        """Add the wheels that were built earlier and may be installed on all phones that use them."""
        found = {abi: self._store.find(abi) for abi in self._abis()}
        usable = {abi: wheel for abi, wheel in found.items() if wheel and self._is_usable(abi, wheel, desired)}
        return self._with_wheels(desired, usable)

    def _is_usable(self, abi: str, wheel: Wheel, desired: DesiredState) -> bool:
        return wheel.is_confirmed or {phone.name for phone in self._users(abi, desired)} <= set(wheel.builders)

    def _abis(self) -> set[str]:
        return {facts.abi for facts in self._progress.facts.values() if facts.abi}

    def _users(self, abi: str, desired: DesiredState) -> list[Phone]:
        """Phones of an ABI that have the module or need it."""
        step, facts = self._build.step, self._progress.facts
        working = [phone for phone in self._progress.working if facts[phone].abi == abi]
        return [phone for phone in working if getattr(facts[phone], step.name) or step.plan(facts[phone], desired)]

    def add_all(self, desired: DesiredState) -> DesiredState:
        """Add all wheels that phones need, building those that are missing.

        If a required wheel cannot be built, the phones that need it fail.
        """
        desired = self.add_cached(desired)
        for _ in range(self._build.max_rounds):
            builders = self._next_builders(desired)
            if not builders or not self._build_on(builders, desired):
                break
            desired = self.add_cached(desired)
        if self._build.required:
            for abi, phones in self._waiting(desired).items():
                self._fail(phones, self._errors[abi])
        return desired

    def _next_builders(self, desired: DesiredState) -> dict[Phone, str]:
        """As many phones per ABI as identical builds are missing. After a mismatch, none."""
        builders: dict[Phone, str] = {}
        for abi, waiting in self._waiting(desired).items():
            if isinstance(self._errors.get(abi), WheelMismatchError):
                continue
            wheel, users = self._store.find(abi), self._users(abi, desired)
            done = set(wheel.builders) if wheel else set()
            missing = min(REQUIRED_BUILDS, len(done | {phone.name for phone in users})) - len(done)
            ranked = [*waiting, *(phone for phone in users if phone not in waiting)]
            able = [phone for phone in ranked if phone not in self._tried and phone.name not in done]
            builders |= dict.fromkeys(able[:missing], abi)
        self._tried |= builders.keys()
        return builders

    def _wheels(self, desired: DesiredState) -> Mapping[str, Wheel]:
        return desired.wheels if self._build.wheels == "wheels" else desired.gpu_wheels

    def _with_wheels(self, desired: DesiredState, wheels: Mapping[str, Wheel]) -> DesiredState:
        if self._build.wheels == "wheels":
            return replace(desired, wheels=wheels)
        return replace(desired, gpu_wheels=wheels)

    def _tools(self, desired: DesiredState) -> tuple[str, ...]:
        return desired.packages.builder if self._build.tools == "builder" else desired.packages.gpu_builder

    def _waiting(self, desired: DesiredState) -> dict[str, list[Phone]]:
        """Phones whose wheel is not built yet, by ABI: those with a compiler first, then by free space."""
        waiting: dict[str, list[Phone]] = defaultdict(list)
        for phone in self._progress.working:
            facts = self._progress.facts[phone]
            if facts.abi and facts.abi not in self._wheels(desired) and self._build.step.plan(facts, desired):
                waiting[facts.abi].append(phone)
        compiler = self._tools(desired)[0]
        for phones in waiting.values():
            phones.sort(key=lambda phone: _builder_rank(self._progress.facts[phone], compiler))
        return waiting

    def _build_on(self, builders: dict[Phone, str], desired: DesiredState) -> bool:
        """False: there is no source."""
        if not self._fetch_sources():
            return False

        def build(target: SshTarget) -> None:
            abi = builders[target.phone]
            try:
                self._install_tools(target, desired)
                self._store.build(target.connect, abi, self._progress.note)
            except PhoneError as error:
                self._errors[abi] = error
                self._progress.note(f"{target.phone} could not build {self._build.step.name}: {error.message}")

        self._run_stage(f"build {self._build.step.name}", builders, build)
        return True

    def _fetch_sources(self) -> bool:
        """False: the source of an optional module could not be fetched."""
        try:
            self._store.sources(self._progress.note)
        except ClusterctlError as error:
            if self._build.required:
                raise
            self._progress.note(f"{self._build.step.name} was not built: {error.message}")
            return False
        return True

    def _install_tools(self, target: SshTarget, desired: DesiredState) -> None:
        facts, tools = self._progress.facts[target.phone], self._tools(desired)
        if any(facts.version(name) is None for name in tools):
            _require_space(facts, desired, tools)
            install_packages(target, facts, desired, tools)

    def _fail(self, phones: Iterable[Phone], error: PhoneError) -> None:
        for phone in phones:
            self._progress.fail(phone, self._build.step.name, error.message, error.remedy)


def _builder_rank(facts: TermuxFacts, compiler: str) -> tuple[bool, int]:
    return facts.version(compiler) is None, -(facts.disk_free_kb or 0)


def _require_space(facts: TermuxFacts, desired: DesiredState, tools: Iterable[str]) -> None:
    """The compiler is large: check that it fits before installing it."""
    index = desired.repositories[facts.arch].index
    if absent := [name for name in tools if name not in index]:
        raise PhoneError(
            f"the package snapshot lacks {', '.join(absent)}", code=ErrorCode.PACKAGE_FAILED, phase="build"
        )
    needed = space_to_add(facts, desired.repositories[facts.arch], tools) + _BUILD_SPACE
    if facts.disk_free_kb is not None and facts.disk_free_kb * 1024 < needed:
        raise PhoneError(
            f"{facts.disk_free_kb >> 10} MB of storage free, the compiler and its files need {needed >> 20} MB",
            code=ErrorCode.DISK_FULL,
            phase="build",
            remedy="free space on one phone of this model (Settings, Device care, Storage), then run the command again",
        )
