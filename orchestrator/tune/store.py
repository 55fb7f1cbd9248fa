"""The measurements on this computer: one a kind of phone, whatever cluster its phones are in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import ClusterctlError
from orchestrator.paths import state_dir
from orchestrator.tune.device_kinds import Kind
from phone_agent.contract.schema import DeviceConfig


@dataclass(frozen=True)
class Tuned:
    """What was found for a kind of phone: the fastest way, and what it was measured with and against."""

    kind: str
    core: str
    driver: str
    model: str
    batch: int
    device_config: DeviceConfig
    images_per_s: float
    rows: tuple[Mapping[str, Any], ...]
    measured: float  # epoch seconds

    @property
    def day(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self.measured))

    def stale(self, kind: Kind) -> str:
        """Why it does not hold for a phone of this kind any more; empty: it does."""
        if self.driver != kind.driver:
            return f"the driver changed: it was '{self.driver}', it is '{kind.driver}'"
        if self.core != kind.core:
            return f"the compute core changed: it was {self.core}, it is {kind.core}"
        return ""


class TuneStore:
    def __init__(self, file: Path | None = None) -> None:
        self._file = file or state_dir() / "tuned.json"

    def read(self) -> dict[str, Tuned]:
        """By the name of the kind."""
        try:
            raw = json.loads(self._file.read_text(encoding="utf-8"))
            return {name: _tuned(each) for name, each in raw.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise ClusterctlError(
                f"{self._file} cannot be read: {error}", remedy="remove it, then run clusterctl tune again"
            ) from None

    def keep(self, tuned: Tuned) -> None:
        """In one step: nobody reads half a file."""
        known = {**self.read(), tuned.kind: tuned}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        new.write_text(json.dumps({name: asdict(each) for name, each in sorted(known.items())}, indent=2) + "\n")
        new.replace(self._file)


def _tuned(raw: dict[str, Any]) -> Tuned:
    return Tuned(**{**raw, "device_config": DeviceConfig(**raw["device_config"]), "rows": tuple(raw["rows"])})
