"""Labs for benchmarks: each starts its own lab and uses it through the command line."""

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
DISK = "2g"  # enough for CIFAR-10


@dataclass(frozen=True)
class Run:
    """Spec and events of a finished run."""

    spec: RunSpec
    events: tuple[dict[str, Any], ...]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]


@dataclass(frozen=True)
class PhoneNamespace:
    """The network namespace and cores of a phone, in which other programs can run for comparison."""

    address: str
    namespace: str
    cores: tuple[int, ...]

    @property
    def command_prefix(self) -> tuple[str, ...]:
        return ("nsenter", f"--net={self.namespace}", "taskset", "--cpu-list", ",".join(map(str, self.cores)))


@contextmanager
def lab(
    phones: int,
    switches: int = 1,
    rate: str = "1gbit",
    uplink: str | None = None,
    disk: str = DISK,
    *,
    provisioned: bool = True,
) -> Iterator[None]:
    """A lab in its own state directory, independent of any lab that is already running."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the finally block runs
    state = tempfile.mkdtemp(prefix="cctl-bench-")
    os.environ["CLUSTERCTL_STATE"] = state
    os.environ.pop("CLUSTERCTL_INVENTORY", None)  # benchmarks must not touch a real rack
    network = ("--switches", str(switches), "--rate", rate, "--uplink", uplink or rate)
    try:
        clusterctl("lab", "up", "--phones", str(phones), *network, "--disk", disk)
        if provisioned:
            clusterctl("provision")
        yield
    finally:
        clusterctl("lab", "down", "--force")
        shutil.rmtree(state, ignore_errors=True)


def clusterctl(*arguments: str) -> str:
    command = [sys.executable, "-m", "orchestrator.cli.app", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"clusterctl {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout


def launch(*arguments: str) -> Run:
    """Run without load balancing, so that batches per phone stay fixed and runs are comparable."""
    summary = json.loads(clusterctl("launch", "--load-balancing", "off", *arguments, "--json"))
    directory = ClusterState(CLUSTER).runs / summary["run_id"]
    events = (directory / "events.jsonl").read_text().splitlines()
    return Run(RunSpec.from_json((directory / "run.json").read_text()), tuple(map(json.loads, events)))


def phone_namespaces() -> list[PhoneNamespace]:
    """One per phone, in ring order."""
    if os.geteuid() != 0:
        sys.exit("only root can enter a phone's network: run this as root")
    lab_status = json.loads(clusterctl("lab", "status", "--json"))
    return [_phone_namespace(phone) for phone in lab_status["phones"]]


def _phone_namespace(phone: dict[str, Any]) -> PhoneNamespace:
    inside = clusterctl("lab", "exec", phone["name"], "--", "readlink", "/proc/self/ns/net").strip()
    pid = next((pid for pid in _processes() if _network(pid) == inside), None)
    if pid is None:
        sys.exit(f"{phone['name']} has no network namespace: the lab runs in loopback mode")
    return PhoneNamespace(phone["address"], f"/proc/{pid}/ns/net", tuple(sorted(os.sched_getaffinity(pid))))


def _processes() -> Sequence[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _network(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:  # the process has exited
        return None
