"""Tuning results on this computer: one per device kind, for all clusters."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.paths import state_dir
from orchestrator.tune.device_kinds import DeviceKind
from phone_agent.contract.decode import decode
from phone_agent.contract.replies import TuneRow
from phone_agent.contract.schema import DeviceConfig


@dataclass(frozen=True)
class Tuned:
    """The fastest device config for a device kind, and the measurements behind it."""

    kind: str
    core: str
    driver: str
    model: str
    batch: int
    device_config: DeviceConfig
    images_per_s: float
    rows: tuple[TuneRow, ...]
    measured: float  # epoch seconds

    @property
    def day(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self.measured))

    def stale_reason(self, kind: DeviceKind) -> str:
        """Why the result no longer applies to this kind; empty if it does."""
        if self.driver != kind.driver:
            return f"the driver changed from '{self.driver}' to '{kind.driver}'"
        if self.core != kind.core:
            return f"the compute core changed from {self.core} to {kind.core}"
        return ""


class TuneStore:
    def __init__(self, file: Path | None = None) -> None:
        self._file = file or state_dir() / "tuned.json"

    def read(self) -> dict[str, Tuned]:
        """By name of the device kind."""
        try:
            return decode(dict[str, Tuned], json.loads(self._file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ClusterctlError(
                f"cannot read {self._file}: {error}", remedy="delete the file, then run clusterctl tune again"
            ) from None

    def save(self, tuned: Tuned) -> None:
        """Atomic: readers never see a partial file."""
        known = {**self.read(), tuned.kind: tuned}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        new.write_text(json.dumps({name: asdict(each) for name, each in sorted(known.items())}, indent=2) + "\n")
        new.replace(self._file)
