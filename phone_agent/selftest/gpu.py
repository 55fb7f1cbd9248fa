"""OpenCL: which library paths find the driver of the vendor. Workers search for themselves, in `opencl.reach`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from phone_agent.contract.assumptions import CheckResult, ok_if, unknown

VENDOR = Path("/vendor/lib64")
DRIVER = VENDOR / "libOpenCL.so"
TIMEOUT_S = 10.0
# Counts the platforms of a library, in a separate process because drivers crash.
COUNT_PLATFORMS = """\
import ctypes, sys
count = ctypes.c_uint(0)
code = ctypes.CDLL(sys.argv[1]).clGetPlatformIDs(0, None, ctypes.byref(count))
print(count.value if code == 0 else f"error {code}")
"""


class Platforms(NamedTuple):
    """The platforms that one search found."""

    found: int
    text: str  # to print


def opencl() -> CheckResult:
    termux = Path(os.environ.get("PREFIX", "/usr")) / "lib"
    searches = {
        "clinfo, vendor libraries first": _clinfo(f"{VENDOR}:{termux}"),
        "clinfo, Termux libraries first": _clinfo(f"{termux}:{VENDOR}"),
        f"loading {DRIVER}": _load(str(DRIVER)),
        "loading libOpenCL.so": _load("libOpenCL.so"),
    }
    texts = {how: each.text for how, each in searches.items()}
    if not DRIVER.exists() and not any(each.found for each in searches.values()):
        return unknown(f"{DRIVER} does not exist", **texts)
    vendor_first, termux_first, by_path, _ = (each.found for each in searches.values())
    as_assumed = bool(vendor_first or by_path) and not termux_first
    return ok_if(as_assumed, "; ".join(f"{how}: {text}" for how, text in texts.items()), **texts)


def _clinfo(libraries: str) -> Platforms:
    done = _run(["clinfo", "-l"], {**os.environ, "LD_LIBRARY_PATH": libraries})
    if isinstance(done, Platforms):
        return done
    if done.returncode != 0:
        return Platforms(0, f"exit code {done.returncode}")
    names = re.findall(r"^Platform #\d+: *(.*)$", done.stdout, re.MULTILINE)
    return Platforms(len(names), f"{len(names)} platforms {', '.join(names)}".strip())


def _load(library: str) -> Platforms:
    done = _run([sys.executable, "-c", COUNT_PLATFORMS, library], dict(os.environ))
    if isinstance(done, Platforms):
        return done
    lines = (done.stdout or done.stderr).strip().splitlines()
    last = lines[-1][:200] if lines else "no output"
    return Platforms(int(last) if last.isdecimal() else 0, last)


def _run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str] | Platforms:
    """The completed process, or zero platforms and the reason."""
    try:
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Platforms(0, f"no answer within {TIMEOUT_S:g} s")
    except OSError as error:
        return Platforms(0, f"cannot run: {error.strerror}")
