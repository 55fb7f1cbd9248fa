"""One phone of each kind builds mpi4py for all others of its kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from orchestrator.errors import PhoneError
from orchestrator.inventory.model import Phone
from orchestrator.provision.facts import Facts
from orchestrator.provision.ledger import Ledger
from orchestrator.provision.steps.mpi4py import Mpi4py
from orchestrator.provision.steps.packages import install_packages, space_to_add
from orchestrator.provision.steps.step import Site
from orchestrator.provision.want import Want
from orchestrator.provision.wheels import Wheel, WheelStore

_PHONES_TO_TRY: Final = 3
_BUILD_SPACE: Final = 300 << 20  # for the source and what the compiler leaves while it works
_STEP: Final = Mpi4py()

Stage = Callable[[str, Iterable[Phone], Callable[[Site], None]], None]


class Builds:
    def __init__(self, stage: Stage, ledger: Ledger, store: WheelStore) -> None:
        self._stage = stage
        self._ledger = ledger
        self._store = store
        self._errors: dict[str, PhoneError] = {}

    def known(self, want: Want) -> Want:
        """With the wheels that were built before."""
        kinds = {facts.abi for facts in self._ledger.facts.values() if facts.abi}
        return replace(want, wheels={abi: wheel for abi in kinds if (wheel := self._store.find(abi))})

    def make(self, want: Want) -> Want:
        """With all wheels that phones wait for; phones whose wheel cannot be built fail."""
        want = self.known(want)
        for attempt in range(_PHONES_TO_TRY):
            waiting = self._waiting(want)
            builders = {phones[attempt]: abi for abi, phones in waiting.items() if attempt < len(phones)}
            if not builders:
                break
            want = replace(want, wheels={**want.wheels, **self._build(builders, want)})
        for abi, phones in self._waiting(want).items():
            self._give_up(phones, self._errors[abi])
        return want

    def _waiting(self, want: Want) -> dict[str, list[Phone]]:
        """Phones that need a wheel nobody built yet, by ABI; those with a compiler first, then by free space."""
        waiting: dict[str, list[Phone]] = defaultdict(list)
        for phone in self._ledger.working:
            facts = self._ledger.facts[phone]
            if facts.abi and facts.abi not in want.wheels and _STEP.check(facts, want):
                waiting[facts.abi].append(phone)
        compiler = want.packages.builder[0]
        for phones in waiting.values():
            phones.sort(key=lambda phone: _effort(self._ledger.facts[phone], compiler))
        return waiting

    def _build(self, builders: dict[Phone, str], want: Want) -> dict[str, Wheel]:
        built: dict[str, Wheel] = {}
        self._store.sources(self._ledger.note)

        def build(site: Site) -> None:
            abi = builders[site.phone]
            try:
                self._add_compiler(site, want)
                built[abi] = self._store.build(site.connect, abi, self._ledger.note)
            except PhoneError as error:
                self._errors[abi] = error
                self._ledger.note(f"{site.phone} could not build mpi4py: {error.message}")

        self._stage("build mpi4py", builders, build)
        return built

    def _add_compiler(self, site: Site, want: Want) -> None:
        facts = self._ledger.facts[site.phone]
        if any(facts.version(name) is None for name in want.packages.builder):
            _require_space(facts, want)
            install_packages(site, facts, want, want.packages.builder)

    def _give_up(self, phones: Iterable[Phone], error: PhoneError) -> None:
        for phone in phones:
            self._ledger.fail(phone, _STEP.name, error.message, error.remedy)


def _effort(facts: Facts, compiler: str) -> tuple[bool, int]:
    return facts.version(compiler) is None, -(facts.disk_free_kb or 0)


def _require_space(facts: Facts, want: Want) -> None:
    """The compiler is large: a phone must not be filled up with it."""
    needed = space_to_add(facts, want.repositories[facts.arch], want.packages.builder) + _BUILD_SPACE
    if facts.disk_free_kb is not None and facts.disk_free_kb * 1024 < needed:
        raise PhoneError(
            f"{facts.disk_free_kb >> 10} MB of storage are free, the compiler and its work need {needed >> 20} MB",
            phase="build",
            remedy="free space on one phone of its kind (Settings, Device care, Storage), then run it again",
        )
