"""One phone of each kind builds mpi4py for all others of its kind; and pyopencl, where there is a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts
from orchestrator.provision.progress import Ledger
from orchestrator.provision.steps.mpi4py import Mpi4py
from orchestrator.provision.steps.packages import install_packages, space_to_add
from orchestrator.provision.steps.pyopencl import PyOpenCl
from orchestrator.provision.steps.step import Site, Step
from orchestrator.provision.wheels import Wheel, WheelStore
from phone_agent.contract.errors import ErrorCode

_BUILD_SPACE: Final = 300 << 20  # for the source and what the compiler leaves while it works


@dataclass(frozen=True)
class Module:
    """What is built."""

    step: Step  # that installs it
    wheels: Literal["wheels", "gpu_wheels"]  # where a Want has them
    tools: Literal["builder", "gpu_builder"]  # the packages its builder needs, as a PackageList calls them
    phones_to_try: int
    needed: bool  # a phone without it is no worker


FOR_MPI: Final = Module(Mpi4py(), "wheels", "builder", 3, needed=True)
FOR_GPUS: Final = Module(PyOpenCl(), "gpu_wheels", "gpu_builder", 2, needed=False)

Stage = Callable[[str, Iterable[Phone], Callable[[Site], None]], None]


class Builds:
    def __init__(self, stage: Stage, ledger: Ledger, store: WheelStore, module: Module) -> None:
        self._stage = stage
        self._ledger = ledger
        self._store = store
        self._module = module
        self._errors: dict[str, PhoneError] = {}

    def known(self, want: Want) -> Want:
        """With the wheels that were built before."""
        kinds = {facts.abi for facts in self._ledger.facts.values() if facts.abi}
        return self._with(want, {abi: wheel for abi in kinds if (wheel := self._store.find(abi))})

    def make(self, want: Want) -> Want:
        """With all wheels that phones wait for; phones whose wheel cannot be built fail, if they need it."""
        want = self.known(want)
        for attempt in range(self._module.phones_to_try):
            waiting = self._waiting(want)
            builders = {phones[attempt]: abi for abi, phones in waiting.items() if attempt < len(phones)}
            if not builders:
                break
            want = self._with(want, {**self._wheels(want), **self._build(builders, want)})
        if self._module.needed:
            for abi, phones in self._waiting(want).items():
                self._give_up(phones, self._errors[abi])
        return want

    def _wheels(self, want: Want) -> Mapping[str, Wheel]:
        return want.wheels if self._module.wheels == "wheels" else want.gpu_wheels

    def _with(self, want: Want, wheels: Mapping[str, Wheel]) -> Want:
        return replace(want, wheels=wheels) if self._module.wheels == "wheels" else replace(want, gpu_wheels=wheels)

    def _tools(self, want: Want) -> tuple[str, ...]:
        return want.packages.builder if self._module.tools == "builder" else want.packages.gpu_builder

    def _waiting(self, want: Want) -> dict[str, list[Phone]]:
        """Phones that need a wheel nobody built yet, by ABI; those with a compiler first, then by free space."""
        waiting: dict[str, list[Phone]] = defaultdict(list)
        for phone in self._ledger.working:
            facts = self._ledger.facts[phone]
            if facts.abi and facts.abi not in self._wheels(want) and self._module.step.check(facts, want):
                waiting[facts.abi].append(phone)
        compiler = self._tools(want)[0]
        for phones in waiting.values():
            phones.sort(key=lambda phone: _effort(self._ledger.facts[phone], compiler))
        return waiting

    def _build(self, builders: dict[Phone, str], want: Want) -> dict[str, Wheel]:
        built: dict[str, Wheel] = {}
        if not self._fetched():
            return built

        def build(site: Site) -> None:
            abi = builders[site.phone]
            try:
                self._add_tools(site, want)
                built[abi] = self._store.build(site.connect, abi, self._ledger.note)
            except PhoneError as error:
                self._errors[abi] = error
                self._ledger.note(f"{site.phone} could not build {self._module.step.name}: {error.message}")

        self._stage(f"build {self._module.step.name}", builders, build)
        return built

    def _fetched(self) -> bool:
        """The source is at hand. Where it cannot be had, phones go on without the module, if they can."""
        try:
            self._store.sources(self._ledger.note)
        except ClusterctlError as error:
            if self._module.needed:
                raise
            self._ledger.note(f"{self._module.step.name} was not built: {error.message}")
            return False
        return True

    def _add_tools(self, site: Site, want: Want) -> None:
        facts, tools = self._ledger.facts[site.phone], self._tools(want)
        if any(facts.version(name) is None for name in tools):
            _require_space(facts, want, tools)
            install_packages(site, facts, want, tools)

    def _give_up(self, phones: Iterable[Phone], error: PhoneError) -> None:
        for phone in phones:
            self._ledger.fail(phone, self._module.step.name, error.message, error.remedy)


def _effort(facts: Facts, compiler: str) -> tuple[bool, int]:
    return facts.version(compiler) is None, -(facts.disk_free_kb or 0)


def _require_space(facts: Facts, want: Want, tools: Iterable[str]) -> None:
    """The compiler is large: a phone must not be filled up with it."""
    index = want.repositories[facts.arch].index
    if absent := [name for name in tools if name not in index]:
        raise PhoneError(
            f"the package snapshot lacks {', '.join(absent)}", code=ErrorCode.PACKAGE_FAILED, phase="build"
        )
    needed = space_to_add(facts, want.repositories[facts.arch], tools) + _BUILD_SPACE
    if facts.disk_free_kb is not None and facts.disk_free_kb * 1024 < needed:
        raise PhoneError(
            f"{facts.disk_free_kb >> 10} MB of storage are free, the compiler and its work need {needed >> 20} MB",
            code=ErrorCode.DISK_FULL,
            phase="build",
            remedy="free space on one phone of its kind (Settings, Device care, Storage), then run it again",
        )
