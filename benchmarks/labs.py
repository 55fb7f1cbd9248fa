"""A lab that a benchmark brings up for itself, and drives as a person would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.paths import ClusterState
from phone_agent.contract.schema import RunSpec

CLUSTER = "lab"
INTERFACE = "eth0"  # of a virtual phone
DISK = "2g"  # has room for a whole CIFAR-10


@dataclass(frozen=True)
class Run:
    """What the host knows of a run that is done."""

    spec: RunSpec
    events: tuple[dict[str, Any], ...]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]


@dataclass(frozen=True)
class Seat:
    """Where another program can sit beside a phone's: in its network, on its cores."""

    address: str
    namespace: str
    cores: tuple[int, ...]

    @property
    def inside(self) -> tuple[str, ...]:
        return ("nsenter", f"--net={self.namespace}", "taskset", "--cpu-list", ",".join(map(str, self.cores)))


@contextmanager
def lab(
    phones: int, switches: int = 1, rate: str = "1gbit", uplink: str | None = None, disk: str = DISK
) -> Iterator[None]:
    """Provisioned; in a state directory of its own, so that a lab that is up stays as it is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below is taken down
    state = tempfile.mkdtemp(prefix="cctl-bench-")
    os.environ["CLUSTERCTL_STATE"] = state
    os.environ.pop("CLUSTERCTL_INVENTORY", None)  # of a real rack, which no benchmark may touch
    cables = ("--switches", str(switches), "--rate", rate, "--uplink", uplink or rate)
    try:
        clusterctl("lab", "up", "--phones", str(phones), *cables, "--disk", disk)
        clusterctl("provision")
        yield
    finally:
        clusterctl("lab", "down")
        shutil.rmtree(state, ignore_errors=True)


def clusterctl(*arguments: str) -> str:
    command = [sys.executable, "-m", "orchestrator.cli.app", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"clusterctl {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def launch(*arguments: str) -> Run:
    """With the same shares at every step: runs are compared with each other, and with one process."""
    summary = json.loads(clusterctl("launch", "--load-balancing", "off", *arguments, "--json"))
    directory = ClusterState(CLUSTER).runs / summary["run_id"]
    events = (directory / "events.jsonl").read_text().splitlines()
    return Run(RunSpec.from_json((directory / "run.json").read_text()), tuple(map(json.loads, events)))


def seats() -> list[Seat]:
    """One a phone, in ring order."""
    if os.geteuid() != 0:
        sys.exit("only root can enter a phone's network: run this as root")
    known = json.loads(clusterctl("lab", "status", "--json"))
    return [_seat(phone) for phone in known["phones"]]


def _seat(phone: dict[str, Any]) -> Seat:
    inside = clusterctl("lab", "exec", phone["name"], "--", "readlink", "/proc/self/ns/net").strip()
    pid = next((pid for pid in _processes() if _network(pid) == inside), None)
    if pid is None:
        sys.exit(f"{phone['name']} has no network of its own: this lab cannot make namespaces")
    return Seat(phone["address"], f"/proc/{pid}/ns/net", tuple(sorted(os.sched_getaffinity(pid))))


def _processes() -> Sequence[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _network(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:  # it ended meanwhile
        return None
