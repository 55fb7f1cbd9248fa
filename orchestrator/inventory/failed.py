"""The phones that failed in the last command: what `--limit @failed` selects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Phone
from orchestrator.paths import ClusterState


def remember_failed(state: ClusterState, phones: Iterable[Phone]) -> None:
    """Replace the record. An empty record means that nothing failed."""
    state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = state.failed.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps([phone.name for phone in phones]) + "\n", encoding="utf-8")
    part.replace(state.failed)


def read_failed(state: ClusterState) -> frozenset[str]:
    try:
        names = json.loads(state.failed.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise _damaged(state) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _damaged(state)
    return frozenset(names)


def _damaged(state: ClusterState) -> UsageError:
    return UsageError(f"--limit @failed: {state.failed} cannot be read", remedy="name the phones, or use @all")
