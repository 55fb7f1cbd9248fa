"""Driver search path: some GPU drivers load only if the vendor libraries come before those of Termux.

Which order works differs between phones, and drivers hang and crash, so a subprocess tries first. If the vendor
libraries must come first, this process restarts itself with that search path.
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
    why: str = ""  # if there is none

    @property
    def found(self) -> bool:
        return self.device is not None


def prepare_driver() -> str:
    """Prepare this process for its device. Returns why there is none, or an empty string.

    If the device needs another library search path, restarts this process with it and does not return.
    """
    probe, environment = _probe_both()
    if environment is not None:
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - restarts itself
    if probe.found:
        load_vendor_driver()  # before MPI is loaded: hwloc enumerates OpenCL devices, and a loader searches only once
    return probe.why


def probe_device() -> DeviceProbe:
    """The device with either library search path."""
    return _probe_both()[0]


def _probe_both() -> tuple[DeviceProbe, dict[str, str] | None]:
    """Also returns the environment that the device needs, if it differs from the current one."""
    current = probe_in_subprocess(os.environ)
    first = vendor_first_environment(os.environ)
    if current.found or first is None:
        return current, None
    probe = probe_in_subprocess(first)
    return (probe, first) if probe.found else (DeviceProbe(None, _explain_both(current.why, probe.why, first)), None)


def _explain_both(current: str, vendor_first: str, environment: Mapping[str, str]) -> str:
    libraries = f"{LIBRARY_PATH}={environment[LIBRARY_PATH]}"
    then = "same result" if vendor_first == current else vendor_first
    return f"{current}; with {libraries}: {then}. If `clinfo -l` lists no device with that either, use --backend cpu"


def vendor_first_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The environment with vendor libraries first. Only for one process: they would break other Termux programs.

    None if that is already the case, or if there is no vendor driver.
    """
    path = f"{VENDOR_DRIVER.parent}:{environment.get('PREFIX', '/usr')}/lib"
    if not VENDOR_DRIVER.exists() or environment.get(LIBRARY_PATH) == path:
        return None
    return {**environment, LIBRARY_PATH: path}


def probe_in_subprocess(environment: Mapping[str, str], timeout_s: float = PROBE_TIMEOUT_S) -> DeviceProbe:
    """Find the device in a subprocess with this environment."""
    argv = [sys.executable, "-m", "phone_agent", "opencl", "--in-process"]
    try:
        done = subprocess.run(
            argv,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DeviceProbe(None, f"the OpenCL driver did not answer within {timeout_s:g} s")
    if done.returncode < 0:
        return DeviceProbe(None, f"the OpenCL driver crashed the probing process with signal {-done.returncode}")
    try:
        return DeviceProbe(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        output = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return DeviceProbe(None, f"the OpenCL probe failed: {output[:200]}")
