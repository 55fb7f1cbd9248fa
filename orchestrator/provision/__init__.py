"""From bare Termux to worker: collect the facts of every phone, compute what is missing, and do only that."""

from __future__ import annotations

from orchestrator.provision.provisioner import ProvisionInterrupted, ProvisionOptions, provision

__all__ = ["ProvisionInterrupted", "ProvisionOptions", "provision"]
