"""Tuning results on this computer: one per device kind, for all clusters."""

from __future__ import annotations

import fcntl
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.paths import state_dir
from orchestrator.tune.device_kinds import DeviceKind
from phone_agent.contract.decode import decode
from phone_agent.contract.files import write_bytes
from phone_agent.contract.replies import TuneRow
from phone_agent.contract.schema import DeviceConfig


@dataclass(frozen=True)
class Tuned:
    """The fastest device config for a device kind, and the measurements behind it."""

    kind: str
    core: str
    opencl_kernels: str
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
        if kind.has_gpu and self.opencl_kernels != kind.opencl_kernels:
            return f"the OpenCL kernels changed from {self.opencl_kernels} to {kind.opencl_kernels}"
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
        """Keeps results that other processes save at the same time. Readers never see a partial file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = {**self.read(), tuned.kind: tuned}
            document = {name: asdict(each) for name, each in sorted(known.items())}
            write_bytes(self._file, (json.dumps(document, indent=2) + "\n").encode())
