"""A phone that is being provisioned over SSH."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.inventory.model import Phone
from orchestrator.provision.desired_state import DesiredState
from orchestrator.provision.engine import Step
from orchestrator.provision.termux_facts import TermuxFacts

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection


@dataclass(frozen=True)
class SshTarget:
    phone: Phone
    connect: Callable[[], PhoneConnection]  # the open connection, or a new one if that was lost
    verify_new_login: Callable[[], None]  # opens another connection; raises PhoneError


ProvisionStep = Step[SshTarget, TermuxFacts, DesiredState, str]
Changes = tuple[str, ...]  # descriptions of what a step would change; empty: nothing
