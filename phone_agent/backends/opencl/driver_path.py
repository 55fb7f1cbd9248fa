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

from phone_agent.backends.opencl.device import VENDOR_DRIVER, load_vendor_driver

PROBE_TIMEOUT_S = 30.0
LIBRARY_PATH = "LD_LIBRARY_PATH"


@dataclass(frozen=True)
class DeviceProbe:
    device: dict[str, Any] | None
    why: str = ""  # there is none

    @property
    def found(self) -> bool:
        return self.device is not None


def prepare_driver() -> str:
    """Why there is no device; empty: there is one, from here on. Where it takes other libraries, does not return: this
    process begins again with those."""
    answer, environment = _try_both()
    if environment is not None:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - itself
    if answer.found:
        load_vendor_driver()  # before MPI is: hwloc asks any OpenCL it finds for devices, and a loader looks only once
    return answer.why


def probe_device() -> DeviceProbe:
    """What can be had in either way."""
    return _try_both()[0]


def _try_both() -> tuple[DeviceProbe, dict[str, str] | None]:
    """And the environment that it takes, where that is another than this one."""
    plainly = probe_in_subprocess(os.environ)
    first = vendor_first_environment(os.environ)
    if plainly.found or first is None:
        return plainly, None
    answer = probe_in_subprocess(first)
    return (answer, first) if answer.found else (DeviceProbe(None, _both(plainly.why, answer.why, first)), None)


def _both(plainly: str, vendor_first: str, environment: Mapping[str, str]) -> str:
    libraries = f"{LIBRARY_PATH}={environment[LIBRARY_PATH]}"
    then = "that was tried too" if vendor_first == plainly else f"with that: {vendor_first}"
    return f"{plainly}; {libraries}: {then}. Where `clinfo -l` with that lists no device either, use --backend cpu"


def vendor_first_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """For a worker alone: vendor's libraries would take the place of Termux's in every other program. None: it is so
    already, or there is no driver."""
    wanted = f"{VENDOR_DRIVER.parent}:{environment.get('PREFIX', '/usr')}/lib"
    if not VENDOR_DRIVER.exists() or environment.get(LIBRARY_PATH) == wanted:
        return None
    return {**environment, LIBRARY_PATH: wanted}


def probe_in_subprocess(environment: Mapping[str, str], patience_s: float = PROBE_TIMEOUT_S) -> DeviceProbe:
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
        return DeviceProbe(None, f"its OpenCL driver did not answer in {patience_s:g} s")
    if done.returncode < 0:
        return DeviceProbe(None, f"its OpenCL driver ended the process that asked it, with signal {-done.returncode}")
    try:
        return DeviceProbe(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return DeviceProbe(None, f"OpenCL could not be asked: {said[:200]}")
