"""Time to run a command on every phone: our Fleet against Fabric, parallel-ssh, pyinfra and Ansible.

    python -m benchmarks.fleet --phones 64 --rounds 5

Every tool starts as a new process with cold connections, one parallel connection per phone, against the same lab of
virtual phones. The tools take turns within each round, and the best round of each counts. All of them run the same
shell text as one command, which is their best case. Unprovisioned phones have no Python, so Ansible uses its `raw`
module; ControlPersist is off, because it only pays off from the second task on. The tools are installed from the
`bench` group of pyproject.toml into a separate virtual environment.

The sshd processes of the virtual phones share the cores of this computer with the tool, which distorts the wall-clock
times. The CPU seconds cover only the tool, and are what would still differ in a rack of real phones.

`fabric` is ThreadingGroup of Fabric, to show the gain of running commands on channels of its transports.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orchestrator.inventory import load
from orchestrator.inventory.model import Cluster
from orchestrator.paths import ClusterState, lab_inventory

ROOT = Path(__file__).parents[1]
CONTESTANTS = Path(__file__).with_name("contestants")
RIVALS = ROOT / "build" / "rivals"  # a virtual environment: the tools need other versions of our dependencies

MARK = "answer-complete"
TASKS = {
    "trivial": f"echo {MARK}",
    "facts": "uname -a; cat /proc/cpuinfo /proc/meminfo; df -k .; getprop ro.product.model; "
    f"getprop ro.build.version.release; id; echo {MARK}",
}


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu: float  # of the tool and its child processes, not of the phones

    def best(self, other: Cost) -> Cost:
        return Cost(min(self.seconds, other.seconds), min(self.cpu, other.cpu))


@dataclass(frozen=True)
class Tool:
    name: str
    argv: list[str]  # the shell text is appended
    env: dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    # Set when running inside the host namespace of the lab.
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        race(load(lab_inventory()), options.rounds)
        return
    install_rivals()
    with lab(options.phones):
        pin_host_keys(load(lab_inventory()))
        inside = [sys.executable, "-m", "benchmarks.fleet", "--inside", "--rounds", str(options.rounds)]
        subprocess.run([*clusterctl(), "lab", "enter", "--", *inside], check=True, cwd=ROOT)


def install_rivals() -> None:
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["bench"]
    stamp = RIVALS / "installed"
    if stamp.exists() and stamp.read_text().splitlines() == requirements:
        return
    print("installing", *requirements, file=sys.stderr)
    venv.create(RIVALS, with_pip=True)
    subprocess.run([RIVALS / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True)
    stamp.write_text("\n".join(requirements))


@contextmanager
def lab(phones: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="clusterctl-bench-") as state:
        os.environ["CLUSTERCTL_STATE"] = state
        try:
            switches = -(-phones // 46)
            subprocess.run([*clusterctl(), "lab", "up", f"--phones={phones}", f"--switches={switches}"], check=True)
            yield
        finally:
            subprocess.run([*clusterctl(), "lab", "down", "--force"], check=True)


def clusterctl() -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli.app"]


def pin_host_keys(cluster: Cluster) -> None:
    """Pin the host keys before the measurement, because the tools verify them."""
    from orchestrator.fleet import Fleet
    from orchestrator.lab.network import LabNetwork

    assert cluster.lab is not None
    with Fleet(cluster.phones, ClusterState(cluster.name), LabNetwork(cluster.lab), trust_new=True) as fleet:
        outcomes = fleet.map(lambda phone: phone.run(["true"], check=True))
    assert outcomes.ok, [(outcome.phone.name, outcome.error) for outcome in outcomes.failures]


def race(cluster: Cluster, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="clusterctl-race-") as scratch:
        tools = contestants(cluster, ClusterState(cluster.name), Path(scratch))
        best = {(tool.name, task): Cost(inf, inf) for tool in tools for task in TASKS}
        for number in range(rounds):
            for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:
                for task, text in TASKS.items():
                    best[tool.name, task] = best[tool.name, task].best(cost(tool, text, len(cluster)))
    report(best, tools, len(cluster))


def cost(tool: Tool, text: str, phones: int) -> Cost:
    started, cpu = time.perf_counter(), children_cpu()
    done = subprocess.run(
        [*tool.argv, text],
        env={**os.environ, **tool.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    spent = Cost(time.perf_counter() - started, children_cpu() - cpu)
    # pyinfra prints the command that it runs: count only lines that end with the mark and contain no `echo`.
    answers = sum(line.endswith(MARK) and "echo" not in line for line in (done.stdout + done.stderr).splitlines())
    assert answers == phones, (
        f"{tool.name}: {answers} of {phones} answers\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    )
    return spent


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def contestants(cluster: Cluster, state: ClusterState, scratch: Path) -> list[Tool]:
    hosts = scratch / "hosts"
    hosts.write_text("".join(f"{phone.address}\n" for phone in cluster))
    common = [str(hosts), cluster.phones[0].user, str(cluster.phones[0].ssh_port), str(state.host_key)]
    parallel = str(len(cluster))
    return [
        Tool("clusterctl", [sys.executable, str(CONTESTANTS / "with_fleet.py")], {}),
        Tool("parallel-ssh", [str(RIVALS / "bin/python"), str(CONTESTANTS / "with_parallel_ssh.py"), *common], {}),
        Tool(
            "pyinfra",
            [
                str(RIVALS / "bin/pyinfra"),
                "-y",
                "--parallel",
                parallel,
                pyinfra_inventory(cluster, state, scratch),
                "exec",
                "--",
            ],
            {},
        ),
        Tool("fabric", [sys.executable, str(CONTESTANTS / "with_fabric.py"), *common, str(state.known_hosts)], {}),
        Tool(
            "ansible",
            [
                str(RIVALS / "bin/ansible"),
                "all",
                "-i",
                ansible_inventory(cluster, state, scratch),
                "-f",
                parallel,
                "-m",
                "raw",
                "-a",
            ],
            {
                "ANSIBLE_SSH_ARGS": f"-F none -o ControlMaster=no -o UserKnownHostsFile={state.known_hosts}",
                "ANSIBLE_HOME": str(scratch / "ansible"),
            },
        ),
    ]


def pyinfra_inventory(cluster: Cluster, state: ClusterState, scratch: Path) -> str:
    path = scratch / "inventory.py"
    data = {
        "ssh_user": cluster.phones[0].user,
        "ssh_port": cluster.phones[0].ssh_port,
        "ssh_key": str(state.host_key),
        "ssh_known_hosts_file": str(state.known_hosts),
        "ssh_look_for_keys": False,
        "ssh_allow_agent": False,
    }
    path.write_text(f"phones = ({[str(phone.address) for phone in cluster]}, {data})\n")
    return str(path)


def ansible_inventory(cluster: Cluster, state: ClusterState, scratch: Path) -> str:
    path = scratch / "inventory.ini"
    lines = [
        f"{phone.name} ansible_host={phone.address} ansible_port={phone.ssh_port} ansible_user={phone.user} "
        f"ansible_ssh_private_key_file={state.host_key}\n"
        for phone in cluster
    ]
    path.write_text("".join(lines))
    return str(path)


def report(best: dict[tuple[str, str], Cost], tools: list[Tool], phones: int) -> None:
    headings = [heading for task in TASKS for heading in (f"{task} s", "ratio", "CPU s", "ratio")]
    table = Table("tool", *headings, title=f"{phones} phones, best round; ratio relative to clusterctl")
    for tool in tools:
        cells = []
        for task in TASKS:
            theirs, ours = best[tool.name, task], best["clusterctl", task]
            cells += [f"{theirs.seconds:.2f}", f"{theirs.seconds / ours.seconds:.2f}"]
            cells += [f"{theirs.cpu:.2f}", f"{theirs.cpu / ours.cpu:.2f}"]
        table.add_row(tool.name, *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
