"""Recovery time, from a fault to the next completed step: clusterctl, Open MPI defaults, and torchrun elastic (gloo).

    python -m benchmarks.recovery --torch-python .venv/bin/python
    python -m benchmarks.recovery --only clusterctl --rounds 5

Starts its own lab. During training, the process of a rank is killed, or the cable of a phone unplugged. For clusterctl
this is a real `launch`. Open MPI does not recover, so its time is the time until mpirun exits, with its default
timeouts. torchrun runs one agent in the network namespace of each phone, with heartbeats every second, a rendezvous
that may continue with one phone fewer, and an allreduce that times out after --patience seconds. Every trial ends after
--bound seconds at the latest.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.table import Table

from benchmarks.labs import INTERFACE, PhoneNamespace, clusterctl, lab, phone_namespaces
from benchmarks.peers import ROOT, torch_python
from orchestrator.chaos.catalog import BY_NAME
from orchestrator.chaos.driver import Driver
from orchestrator.chaos.plan import Injection, PlannedFault, RunPlan
from orchestrator.chaos.testbed import Testbed
from orchestrator.lab.spec import SSH_PORT, Mode
from orchestrator.launch.mpirun import KEEPALIVE, bind_to, environment, mpirun_argv, parameters
from orchestrator.paths import state_dir

PHONES, VICTIM, PORT = 4, 2, 29500
KILLED, CABLE = "rank killed", "cable out"
OURS, OPEN_MPI, TORCHRUN = "clusterctl", "openmpi", "torchrun"
TITLES = {OURS: "clusterctl", OPEN_MPI: "Open MPI, until mpirun exits", TORCHRUN: "torchrun elastic, gloo"}
WORKER = ROOT / "benchmarks" / "recovery_peer.py"
_AT_STEP, _WARM_STEPS, _STARTED_WITHIN_S = 30, 20, 120.0
_EXEC = (sys.executable, "-m", "orchestrator.cli.app", "lab", "exec")
_RENDEZVOUS = "join_timeout=60,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
# clusterctl starts the daemons of Open MPI itself, and phones may run nothing on each other. Plain mpirun needs that.
_ALLOW_COMMANDS = """
ssh-keygen -y -f .ssh/clusterctl_ed25519 | cat - .ssh/authorized_keys >.ssh/all && mv .ssh/all .ssh/authorized_keys
"""
_MARK = "recovery-pinger"
_PINGER = f"""
import time
from mpi4py import MPI
mark = {_MARK!r}
while True:
    MPI.COMM_WORLD.allreduce(1)
    if MPI.COMM_WORLD.rank == 0:
        print("step", flush=True)
    time.sleep(0.05)
"""

Results = dict[tuple[str, str], list[float | None]]  # by contestant and fault; None: not recovered within the bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="Python interpreter with PyTorch (default: this one)")
    parser.add_argument("--only", action="append", choices=TITLES, help="run only this contestant; may be repeated")
    parser.add_argument("--bound", type=float, default=60.0, help="longest wait for a recovery, in seconds")
    parser.add_argument("--patience", type=float, default=5.0, help="timeout of the torchrun allreduce, in seconds")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chosen = options.only or list(TITLES)
    python = torch_python(options.torch_python) if TORCHRUN in chosen else ""
    trials: dict[str, Callable[[str], float | None]] = {
        OURS: _ours,
        OPEN_MPI: lambda fault: _open_mpi(fault, options.bound),
        TORCHRUN: lambda fault: _torchrun(python, fault, options),
    }
    results: Results = {(name, fault): [] for name in chosen for fault in (KILLED, CABLE)}
    with lab(PHONES, 2):
        for _ in range(options.rounds):
            for name, fault in results:
                results[name, fault].append(trials[name](fault))
                print(
                    f"{TITLES[name]}, {fault}: {_format_seconds(results[name, fault][-1], options.bound)} s",
                    file=sys.stderr,
                )
    show(results, options.bound)


def show(results: Results, bound: float) -> None:
    table = Table("", title=f"{PHONES} phones: seconds from the fault to the next step", title_justify="left")
    for fault in (KILLED, CABLE):
        table.add_column(f"{fault}: median", justify="right")
        table.add_column("worst", justify="right")
    for name in dict.fromkeys(name for name, _ in results):
        cells = [cell for fault in (KILLED, CABLE) for cell in _summary(results[name, fault], bound)]
        table.add_row(TITLES[name], *cells)
    Console().print(table)


def _summary(seconds: list[float | None], bound: float) -> tuple[str, str]:
    times = [bound + 1 if each is None else each for each in seconds]
    return tuple(
        _format_seconds(None if each > bound else each, bound) for each in (statistics.median(times), max(times))
    )  # type: ignore[return-value]


def _format_seconds(seconds: float | None, bound: float) -> str:
    return f"> {bound:.0f}" if seconds is None else f"{seconds:.1f}"


# ---------------------------------------------------------------------------------------------------------- clusterctl


def _ours(fault: str) -> float | None:
    """Uses the chaos driver, which waits longer than the bound."""
    with tempfile.TemporaryDirectory() as scratch:
        driver = Driver(Testbed(state_dir(), Path(scratch)), seed=1)
        injection = Injection(_AT_STEP, (PlannedFault(BY_NAME[fault], VICTIM),))
        outcome = driver.run(RunPlan(1, PHONES, (injection,)))
    return outcome.injections[0].seconds


# ------------------------------------------------------------------------------------------------------------ Open MPI


def _open_mpi(fault: str, bound: float) -> float | None:
    """mpirun on the first phone, as clusterctl calls it, but with the default timeouts of Open MPI."""
    namespaces = phone_namespaces()
    hosts = "".join(f"{namespace.address} slots=1\n" for namespace in namespaces)
    clusterctl("lab", "exec", _name(0), "--", "bash", "-c", 'printf %s "$1" >hostfile', "bash", hosts)
    for number in range(PHONES):
        clusterctl("lab", "exec", _name(number), "--", "bash", "-c", _ALLOW_COMMANDS)
    program = ("python3", "-c", _PINGER)
    ours = mpirun_argv(PHONES, PurePosixPath(), parameters(Mode.ROOT.network, "recovery"), program)
    settings = (f"{name}={value}" for name, value in environment().items())
    command = (
        *_EXEC,
        _name(0),
        "--",
        "env",
        *settings,
        *bind_to(namespaces[0].address),
        *_with_defaults(ours),
    )
    with _started(command) as (process, log):
        _await_steps(lambda: log.read_text().count("step"))
        with _injected(fault, lambda: clusterctl("lab", "exec", _name(VICTIM), "--", "pkill", "-KILL", "-f", _MARK)):
            return _seconds(lambda: process.poll() is not None, bound)


def _with_defaults(argv: tuple[str, ...]) -> list[str]:
    """Open MPI 4.1 defaults: daemons started by ssh; the first probe after 300 s of silence, then nine probes, one
    every 20 s."""
    remaining = [*argv]
    remaining[remaining.index("plm_rsh_agent") + 1] = f"ssh -p {SSH_PORT} -o BatchMode=yes"
    for name in KEEPALIVE:
        at = remaining.index(name)
        del remaining[at - 1 : at + 2]  # --mca, the name, the value
    return remaining


@contextmanager
def _started(command: tuple[str, ...]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process, Path(log.name)
        finally:
            process.kill()
            process.wait()
            for number in range(PHONES):
                cleanup = (*_EXEC, _name(number), "--", "pkill", "-KILL", "-f", f"{_MARK}|orted|mpirun")
                subprocess.run(cleanup, capture_output=True, check=False)


# ------------------------------------------------------------------------------------------------------------ torchrun


def _torchrun(python: str, fault: str, options: argparse.Namespace) -> float | None:
    """Rank 0 writes every step to a file."""
    namespaces = phone_namespaces()
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as steps:
        path = Path(steps.name)
        agents = [_agent(python, namespace, namespaces[0].address, path, options.patience) for namespace in namespaces]
        try:
            _await_steps(lambda: len(path.read_text().splitlines()))
            before = _generations(path)
            with _injected(fault, lambda: _kill(_workers(agents[VICTIM]))):
                return _seconds(lambda: _generations(path) > before, options.bound)
        finally:
            for agent in agents:
                _kill([*_workers(agent), agent.pid])
                agent.wait()


def _agent(
    python: str, namespace: PhoneNamespace, head: str, steps: Path, patience_s: float
) -> subprocess.Popen[bytes]:
    endpoint = (f"--rdzv-endpoint={head}:{PORT}", "--rdzv-backend=c10d", "--rdzv-id=recovery")
    topology = (f"--local-addr={namespace.address}", f"--nnodes={PHONES - 1}:{PHONES}", "--nproc-per-node=1")
    hosts = str(
        namespace.address == head
    ).lower()  # explicit: an agent in a namespace does not recognize its own address
    rendezvous = f"--rdzv-conf=is_host={hosts},{_RENDEZVOUS}"
    worker = ("--max-restarts=3", "--monitor-interval=0.1", str(WORKER), str(steps), str(patience_s))
    command = [
        *namespace.command_prefix,
        python,
        "-m",
        "torch.distributed.run",
        *endpoint,
        *topology,
        rendezvous,
        *worker,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE}
    null = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=null, stderr=null, start_new_session=True)


def _workers(agent: subprocess.Popen[bytes]) -> list[int]:
    listed = subprocess.run(["pgrep", "--parent", str(agent.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _generations(path: Path) -> int:
    """Number of rendezvous so far: after each one, the steps are logged with a new generation number."""
    return len({line.split()[0] for line in path.read_text().splitlines() if line.strip()})


# ------------------------------------------------------------------------------------------------------------- shared


@contextmanager
def _injected(fault: str, kill: Callable[[], object]) -> Iterator[None]:
    if fault == KILLED:
        kill()
        yield
        return
    clusterctl("lab", "set", _name(VICTIM), "link=down")
    try:
        yield
    finally:
        clusterctl("lab", "set", _name(VICTIM), "link=up")


def _name(number: int) -> str:
    """Name of the phone with this rank, on two switches."""
    half = PHONES // 2
    return f"p{number // half + 1}-{number % half + 1:02}"


def _await_steps(step_count: Callable[[], int]) -> None:
    if _seconds(lambda: step_count() > _WARM_STEPS, _STARTED_WITHIN_S) is None:
        raise SystemExit(f"training did not start: fewer than {_WARM_STEPS} steps in {_STARTED_WITHIN_S:.0f} s")


def _seconds(condition: Callable[[], bool], bound: float) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < bound:
        if condition():
            return time.monotonic() - began
        time.sleep(0.02)
    return None


if __name__ == "__main__":
    main()
