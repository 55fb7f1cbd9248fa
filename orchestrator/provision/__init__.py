"""From bare Termux to worker: `provision` looks at every phone, decides what is missing, and does only that."""

from __future__ import annotations

from orchestrator.provision.run import Options, ProvisionInterrupted, provision

__all__ = ["Options", "ProvisionInterrupted", "provision"]
