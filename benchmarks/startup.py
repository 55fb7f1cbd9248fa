"""Time from `launch` to the first step of a run, by phase, on a lab of virtual phones.

    python -m benchmarks.startup --phones 138
    python -m benchmarks.startup --phones 8 24 --rack 2000 --json

Starts a lab of each size, with up to 46 phones per switch. Times `provision`, `status` and `launch`, and stops the run
after its first step. `launch` reports when it has checked and staged all phones. All other times are those of
processes: virtual phones run on this computer, so the start of each daemon and rank is in /proc. Each rank logs the
phases of its start-up in a file, which is read the same way.

All phones share the cores of this computer, which is why the CPU time of each part is listed as well: on a rack, the
daemons and ranks use the processors of the phones. With two sizes, the start-up of a rack (`--rack`) is modeled from
CPU times: what this computer does grows with the number of phones, and so does the work of mpirun on the head phone;
daemons and ranks start on all phones at the same time. A phone is assumed to need three times as long as this computer.
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
_STARTED, _CPU_TIMES = 19, slice(11, 15)  # fields of /proc/PID/stat after the name; with those of ended children
_PHONE_SLOWDOWN = 3.0  # of a core of a phone, to one of this computer
_LINK_BYTES_PER_S = 117e6  # of this computer, at 1 Gbit/s


@dataclass(frozen=True)
class Milestone:
    name: str
    seconds: float  # since `launch` was called
    launch_cpu_s: float | None = None  # that `launch` has used by then


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
    spec_bytes: int  # of run.json, which goes to every phone

    def launch_cpu_s(self, first: str, last: str) -> float:
        """That `launch` used between two milestones."""
        used = {each.name: each.launch_cpu_s or 0.0 for each in self.milestones}
        return used[last] - used.get(first, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, nargs="+", default=[24])
    parser.add_argument("--rack", type=int, default=2000, help="phones of the modeled rack")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    options = parser.parse_args()
    measured = [_measure_lab(phones) for phones in sorted(options.phones)]
    modeled = model(measured[0], measured[-1], options.rack) if len(measured) > 1 else {}
    if options.json:
        print(json.dumps({"measured": [asdict(each) for each in measured], "modeled": modeled}, indent=2))
        return
    for each in measured:
        report(each)
    if modeled:
        report_model(modeled, options.rack)


def _measure_lab(phones: int) -> Startup:
    with lab(phones, switches=-(-phones // PHONES_PER_SWITCH), disk="1g", provisioned=False):
        return measure(phones)


def model(small: Startup, large: Startup, phones: int) -> dict[str, float]:
    """Seconds of each phase on a rack, from CPU times."""

    def extrapolate(at_small: float, at_large: float) -> float:
        slope = (at_large - at_small) / (large.phones - small.phones)
        return max(0.0, at_small + slope * (phones - small.phones))

    def on_host(first: str, last: str) -> float:
        return extrapolate(small.launch_cpu_s(first, last), large.launch_cpu_s(first, last))

    def per_phone(part: str) -> float:
        return large.cpu_s[part] / large.phones * _PHONE_SLOWDOWN

    spec_bytes = large.spec_bytes / large.phones * phones
    return {
        "connect and check (this computer)": on_host("", "phones checked"),
        "stage (this computer)": on_host("phones checked", "files staged"),
        "stage (network)": phones * spec_bytes / _LINK_BYTES_PER_S,
        "start daemons (this computer)": on_host("files staged", "started"),
        "mpirun (head phone)": extrapolate(small.cpu_s["mpirun"], large.cpu_s["mpirun"]) * _PHONE_SLOWDOWN,
        "daemon (each phone)": per_phone("orted"),
        "rank up to the first step (each phone)": per_phone("rank"),
    }


def measure(phones: int) -> Startup:
    provision_s = _seconds("provision")
    status_s = _seconds("status", "--json")
    begin = time.time()
    run, reported = _launch(begin)
    try:
        events = _await_step(run)
        processes = [*_processes(run.name)]
        milestones = [*reported, *_from_processes(processes, begin), *_from_ranks(processes, run.name, begin)]
        milestones += [_first(events, "start", "ranks ready", begin), _first(events, "step", "first step", begin)]
        cpu_s = {name: _cpu(processes, name) for name in ("mpirun", "orted", "rank")}
    finally:
        clusterctl("stop", run.name)
    ordered = tuple(sorted(milestones, key=lambda each: each.seconds))
    return Startup(phones, provision_s, status_s, ordered, cpu_s, (run / layout.RUN_FILE).stat().st_size)


def _seconds(*command: str) -> float:
    begin = time.monotonic()
    clusterctl(*command)
    return time.monotonic() - begin


def _launch(begin: float) -> tuple[Path, list[Milestone]]:
    """The directory of the run, and when `launch` reports what."""
    command = [sys.executable, "-m", "orchestrator.cli.app", *_LAUNCH, "--json"]
    milestones = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if (name := _REPORTED.get(line.partition(" ")[0])) and line.rstrip().endswith("done"):
                milestones.append(Milestone(name, time.time() - begin, _cpu_s(PROC / str(process.pid))))
        document = process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"launch failed with exit code {process.returncode}")
    return ClusterState(CLUSTER).runs / json.loads(document)["run_id"], milestones


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
                argv = tuple(command.decode(errors="replace").split("\0")[:-1])
                yield Process(int(path.name), argv, booted + int(_stat(path)[_STARTED]) / _TICKS, _cpu_s(path))


def _stat(process: Path) -> list[str]:
    """The fields after the name."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _cpu_s(process: Path) -> float:
    return sum(map(int, _stat(process)[_CPU_TIMES])) / _TICKS


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
    table = Table("until", "s", "s since launch", "CPU s of launch", title=f"{startup.phones} virtual phones, LeNet")
    before = 0.0
    for each in startup.milestones:
        cpu_s = "" if each.launch_cpu_s is None else f"{each.launch_cpu_s:.1f}"
        table.add_row(each.name, f"{each.seconds - before:.1f}", f"{each.seconds:.1f}", cpu_s)
        before = each.seconds
    console = Console()
    console.print(table)
    console.print("CPU s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in startup.cpu_s.items()))
    console.print(f"provision {startup.provision_s:.1f} s, status {startup.status_s:.1f} s")


def report_model(modeled: dict[str, float], phones: int) -> None:
    table = Table("phase", "s", title=f"{phones} phones: modeled, not measured")
    for name, seconds in modeled.items():
        table.add_row(name, f"{seconds:.1f}")
    table.add_row("launch to first step", f"{sum(modeled.values()):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
