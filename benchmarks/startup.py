"""Time from `launch` to the first step of a run, by phase, on a lab of virtual phones.

    python -m benchmarks.startup --phones 138
    python -m benchmarks.startup --phones 24 --json

Starts its own lab of up to 46 phones per switch. Times `provision`, `status` and `launch`, and stops the run after its
first step. `launch` reports when it has checked and staged all phones. All other times are those of processes: virtual
phones run on this computer, so the start of each daemon and rank is in /proc. Each rank logs the phases of its start-up
in a file, which is read the same way.

All phones share the cores of this computer, which is why the CPU time of each part is listed as well: on a rack, the
daemons and ranks use the processors of the phones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.labs import CLUSTER, clusterctl, lab
from orchestrator.paths import ClusterState
from phone_agent.contract import layout

PROC = Path("/proc")
PHONES_PER_SWITCH = 46
_HOME = "data/data/com.termux/files/home"
_LAUNCH = ("launch", "--model", "lenet", "--batch", "4", "--steps", "100000", "--load-balancing", "off", "--detach")
_REPORTED = {"checking": "phones checked", "pushing": "data pushed", "staging": "files staged", "starting": "started"}
_FIRST_STEP_S = 1800.0
_TICKS = os.sysconf("SC_CLK_TCK")
_STARTED, _USER, _SYSTEM = 19, 11, 12  # fields of /proc/PID/stat after the name


@dataclass(frozen=True)
class Milestone:
    name: str
    seconds: float  # since `launch` was called


@dataclass(frozen=True)
class Process:
    pid: int
    argv: tuple[str, ...]
    started: float  # seconds since the epoch
    cpu_s: float


@dataclass(frozen=True)
class Startup:
    phones: int
    provision_s: float
    status_s: float
    milestones: tuple[Milestone, ...]  # in order of time
    cpu_s: dict[str, float]  # of each part, until the first step

    @property
    def first_step_s(self) -> float:
        return self.milestones[-1].seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=24)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    options = parser.parse_args()
    with lab(options.phones, switches=-(-options.phones // PHONES_PER_SWITCH), disk="1g", provisioned=False):
        startup = measure(options.phones)
    if options.json:
        print(json.dumps(asdict(startup), indent=2))
    else:
        report(startup)


def measure(phones: int) -> Startup:
    provision_s = _seconds("provision")
    status_s = _seconds("status", "--json")
    begin = time.time()
    run, reported, host_cpu_s = _launch(begin)
    try:
        events = _await_step(run)
        processes = [*_processes(run.name)]
        milestones = [*reported, *_from_processes(processes, begin), *_from_ranks(processes, run.name, begin)]
        milestones += [_first(events, "start", "ranks ready", begin), _first(events, "step", "first step", begin)]
        cpu_s = {"launch": host_cpu_s, **{name: _cpu(processes, name) for name in ("mpirun", "orted", "rank")}}
    finally:
        clusterctl("stop", run.name)
    ordered = tuple(sorted(milestones, key=lambda each: each.seconds))
    return Startup(phones, provision_s, status_s, ordered, cpu_s)


def _seconds(*command: str) -> float:
    begin = time.monotonic()
    clusterctl(*command)
    return time.monotonic() - begin


def _launch(begin: float) -> tuple[Path, list[Milestone], float]:
    """The directory of the run, what `launch` reports with the time at which it does, and its CPU time."""
    command = [sys.executable, "-m", "orchestrator.cli.app", *_LAUNCH, "--json"]
    milestones = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if (name := _REPORTED.get(line.partition(" ")[0])) and line.rstrip().endswith("done"):
                milestones.append(Milestone(name, time.time() - begin))
        document = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"launch failed with exit code {process.returncode}")
    run = ClusterState(CLUSTER).runs / json.loads(document)["run_id"]
    return run, milestones, used.ru_utime + used.ru_stime


def _await_step(run: Path) -> list[dict[str, Any]]:
    """The events up to the first step, or later."""
    deadline = time.monotonic() + _FIRST_STEP_S
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
            if any(event["event"] == "step" for event in events):
                return events
        time.sleep(0.2)
    sys.exit(f"no step within {_FIRST_STEP_S:.0f} s")


def _processes(run_id: str) -> Iterator[Process]:
    """Those that execute the run."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_bytes()
            if run_id.encode() in command:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                argv = tuple(command.decode(errors="replace").split("\0")[:-1])
                cpu_s = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
                yield Process(int(path.name), argv, booted + int(fields[_STARTED]) / _TICKS, cpu_s)


def _of_kind(processes: Sequence[Process], kind: str) -> list[Process]:
    if kind == "rank":
        return [each for each in processes if each.argv[1:4] == ("-m", "phone_agent", "train")]
    return [each for each in processes if each.argv[0].rpartition("/")[2] == kind]


def _cpu(processes: Sequence[Process], kind: str) -> float:
    return round(sum(each.cpu_s for each in _of_kind(processes, kind)), 2)


def _from_processes(processes: Sequence[Process], begin: float) -> Iterator[Milestone]:
    for kind, name in (("mpirun", "mpirun"), ("orted", "daemon"), ("rank", "rank")):
        starts = sorted(each.started - begin for each in _of_kind(processes, kind))
        if starts:
            yield Milestone(f"first {name} started" if len(starts) > 1 else f"{name} started", starts[0])
        if len(starts) > 1:
            yield Milestone(f"last {name} started", starts[-1])


def _from_ranks(processes: Sequence[Process], run_id: str, begin: float) -> Iterator[Milestone]:
    """When the last rank entered each phase of its start-up."""
    last: dict[str, float] = {}
    for rank in _of_kind(processes, "rank"):
        with suppress(OSError):
            log = PROC / str(rank.pid) / "root" / _HOME / ".clusterctl/runs" / run_id / layout.STARTUP_FILE
            for line in log.read_text().splitlines():
                entry = json.loads(line)
                last[entry["phase"]] = max(last.get(entry["phase"], 0.0), entry["time"] - begin)
    for phase, seconds in last.items():
        yield Milestone(f"last rank: {re.sub('_', ' ', phase)}", seconds)


def _first(events: Sequence[dict[str, Any]], kind: str, name: str, begin: float) -> Milestone:
    return Milestone(name, next(event["time"] for event in events if event["event"] == kind) - begin)


def report(startup: Startup) -> None:
    table = Table("until", "s", "s since launch", title=f"{startup.phones} virtual phones, LeNet")
    before = 0.0
    for each in startup.milestones:
        table.add_row(each.name, f"{each.seconds - before:.1f}", f"{each.seconds:.1f}")
        before = each.seconds
    console = Console()
    console.print(table)
    console.print("CPU s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in startup.cpu_s.items()))
    console.print(f"provision {startup.provision_s:.1f} s, status {startup.status_s:.1f} s")


if __name__ == "__main__":
    main()
