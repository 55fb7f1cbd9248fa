"""How this process gets at the phone's GPU: as it is, or started anew with the vendor's libraries before Termux's.

Which of the two a driver wants differs from phone to phone, and drivers hang and crash: another process tries first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phone_agent.backends.opencl.device import VENDOR, load_driver

PATIENCE_S = 30.0
LIBRARIES = "LD_LIBRARY_PATH"


@dataclass(frozen=True)
class Answer:
    device: dict[str, Any] | None
    why: str = ""  # there is none

    @property
    def found(self) -> bool:
        return self.device is not None


def prepare() -> str:
    """Why there is no device; empty: there is one, from here on. Where it takes other libraries, does not return: this
    process begins again with those."""
    answer, environment = _try_both()
    if environment is not None:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - itself
    if answer.found:
        load_driver()  # before MPI is: hwloc asks any OpenCL it finds for devices, and a loader looks only once
    return answer.why


def look() -> Answer:
    """What can be had in either way."""
    return _try_both()[0]


def _try_both() -> tuple[Answer, dict[str, str] | None]:
    """And the environment that it takes, where that is another than this one."""
    plainly = ask(os.environ)
    first = with_vendor_first(os.environ)
    if plainly.found or first is None:
        return plainly, None
    answer = ask(first)
    return (answer, first) if answer.found else (Answer(None, _both(plainly.why, answer.why, first)), None)


def _both(plainly: str, vendor_first: str, environment: Mapping[str, str]) -> str:
    libraries = f"{LIBRARIES}={environment[LIBRARIES]}"
    then = "that was tried too" if vendor_first == plainly else f"with that: {vendor_first}"
    return f"{plainly}; {libraries}: {then}. Where `clinfo -l` with that lists no device either, use --backend cpu"


def with_vendor_first(environment: Mapping[str, str]) -> dict[str, str] | None:
    """For a worker alone: vendor's libraries would take the place of Termux's in every other program. None: it is so
    already, or there is no driver."""
    wanted = f"{VENDOR.parent}:{environment.get('PREFIX', '/usr')}/lib"
    if not VENDOR.exists() or environment.get(LIBRARIES) == wanted:
        return None
    return {**environment, LIBRARIES: wanted}


def ask(environment: Mapping[str, str], patience_s: float = PATIENCE_S) -> Answer:
    """A process with this environment, for its device."""
    argv = [sys.executable, "-m", "phone_agent", "opencl", "--in-process"]
    try:
        done = subprocess.run(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(None, f"its OpenCL driver did not answer in {patience_s:g} s")
    if done.returncode < 0:
        return Answer(None, f"its OpenCL driver ended the process that asked it, with signal {-done.returncode}")
    try:
        return Answer(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Answer(None, f"OpenCL could not be asked: {said[:200]}")
