from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import Want
from orchestrator.provision.facts import Facts

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

Changes = tuple[str, ...]  # what would change, in words; empty: nothing


@dataclass(frozen=True)
class Site:
    """A phone being worked on, and the ways to reach it."""

    phone: Phone
    connect: Callable[[], PhoneConnection]  # the one kept, made again if it was lost
    log_in_afresh: Callable[[], None]  # proves that a new connection can be made; raises PhoneError


class Step(Protocol):
    name: str

    def check(self, facts: Facts, want: Want) -> Changes: ...

    def apply(self, site: Site, facts: Facts, want: Want) -> None: ...
