"""The inventory: which phone is on which switch port, and `--limit` selections."""

from orchestrator.inventory.dump import dump
from orchestrator.inventory.load import load
from orchestrator.inventory.model import Cluster, Phone, Switch, Uplink
from orchestrator.inventory.ring_traffic import hostfile
from orchestrator.inventory.selection import fold, remember_failed, select

__all__ = ["Cluster", "Phone", "Switch", "Uplink", "dump", "fold", "hostfile", "load", "remember_failed", "select"]
