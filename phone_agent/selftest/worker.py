"""Can this phone train? Each check returns a description, or raises an AgentError that names the problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phone_agent.contract import manifest
from phone_agent.contract.errors import AgentError, ErrorCode, code_of, read_error_line
from phone_agent.device import interfaces, memory
from phone_agent.device.facts import RELEASE

MIN_FREE_MB = 200
TIMEOUT_S = 90.0  # mpirun needs a second on a phone, but virtual phones share their cores
LIBRARY_VERSION = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
)
RING_OF_ONE = ("allreduce-bench", "--mb", "0.1", "--algorithm", "ring", "--repeats", "1")

Check = Callable[[], str]  # returns a description; raises AgentError


def run(address: str | None = None, release: Path = RELEASE) -> dict[str, Any]:
    checks: dict[str, Check] = {
        "tmpdir": check_tmpdir,  # before MPI, which may create a missing directory
        "numpy": check_numpy,
        "mpi4py": check_mpi4py,
        "core": check_core,
        "ring": check_ring,
        "disk": lambda: check_room("disk", memory.free_disk_mb(Path.home()), ErrorCode.DISK_FULL),
        "memory": lambda: check_room("memory", memory.available_mb(), ErrorCode.OUT_OF_MEMORY),
        "release": lambda: check_release(release),
    }
    if address is not None:
        checks["address"] = lambda: check_address(address)
    results = [_result(name, check) for name, check in checks.items()]
    return {"ok": all(result["ok"] for result in results), "checks": results}


def check_numpy() -> str:
    try:
        import numpy as np
    except ImportError as error:
        raise AgentError(f"numpy cannot be imported: {error}", code=ErrorCode.BROKEN_ENVIRONMENT) from None
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    if (square @ square).trace() != 180:
        raise AgentError(f"numpy {np.__version__} multiplies incorrectly", code=ErrorCode.BROKEN_ENVIRONMENT)
    return f"numpy {np.__version__}"


def check_mpi4py() -> str:
    """Runs in a separate process: an incompatible library may crash it."""
    return _output([sys.executable, "-c", LIBRARY_VERSION]).split(",")[0].strip()


def check_core() -> str:
    """Runs in a separate process as well. Returns the instruction sets that have kernels, best first."""
    return _output([sys.executable, "-m", "phone_agent.core"]).strip()


def check_ring() -> str:
    answer = _output(["mpirun", "-np", "1", "--bind-to", "none", sys.executable, "-m", "phone_agent", *RING_OF_ONE])
    if not json.loads(answer.splitlines()[-1])["correct"]:
        raise AgentError("an allreduce over one rank gives a wrong sum", code=ErrorCode.MPI_FAILED)
    return "mpirun starts a rank, and its allreduce is correct"


def check_tmpdir() -> str:
    """Open MPI puts its sockets there, and Android has no /tmp to fall back to."""
    directory = os.environ.get("TMPDIR")
    if not directory:
        raise AgentError("TMPDIR is not set: start sshd from Termux", code=ErrorCode.BROKEN_ENVIRONMENT)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"x")
    except OSError as error:
        raise AgentError(f"TMPDIR {directory} is not writable: {error.strerror}", code=code_of(error)) from None
    return directory


def check_room(name: str, free_mb: int | None, lacking: ErrorCode) -> str:
    if free_mb is None:
        return "not readable"
    if free_mb < MIN_FREE_MB:
        raise AgentError(f"{free_mb} MB of {name} free, but {MIN_FREE_MB} MB are required", code=lacking)
    return f"{free_mb} MB free"


def check_release(release: Path) -> str:
    problems = manifest.verify(release)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise AgentError(f"{problems[0]}{more}: provision this phone again", code=ErrorCode.AGENT_DAMAGED)
    return f"version {manifest.read(release)['version']}"


def check_address(address: str) -> str:
    if interfaces.has_address(address) is False:
        raise AgentError(
            f"no interface has {address}; addresses found: {interfaces.addresses()}", code=ErrorCode.BROKEN_ENVIRONMENT
        )
    return address


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        if reported := read_error_line(error.stderr):
            raise AgentError(reported[1], code=reported[0]) from None
        last = " ".join(error.stderr.strip().splitlines()[-3:])
        raise AgentError(
            f"{argv[0]} failed with exit code {error.returncode}: {last}", code=ErrorCode.COMMAND_FAILED
        ) from None
    except subprocess.TimeoutExpired as error:
        raise AgentError(str(error), code=ErrorCode.TIMED_OUT) from None
    except OSError as error:
        raise AgentError(str(error), code=ErrorCode.BROKEN_ENVIRONMENT) from None
    return done.stdout


def _result(name: str, check: Check) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "detail": check()}
    except AgentError as error:
        return {"name": name, "ok": False, "detail": str(error), "code": error.code}
