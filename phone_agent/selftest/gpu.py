"""OpenCL: who finds the vendor's driver, and how. Which way a worker goes is found by `opencl.reach` each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from phone_agent.contract.assumptions import Found, judged, unknown

VENDOR = Path("/vendor/lib64")
DRIVER = VENDOR / "libOpenCL.so"
PATIENCE_S = 10.0
# Asks a library how many platforms it has; in a process of its own, since drivers crash.
ASK = """\
import ctypes, sys
count = ctypes.c_uint(0)
code = ctypes.CDLL(sys.argv[1]).clGetPlatformIDs(0, None, ctypes.byref(count))
print(count.value if code == 0 else f"error {code}")
"""


class Platforms(NamedTuple):
    """What one way of asking found."""

    found: int
    text: str  # for a person


def opencl() -> Found:
    ours = Path(os.environ.get("PREFIX", "/usr")) / "lib"
    found = {
        "clinfo, vendor's libraries first": _clinfo(f"{VENDOR}:{ours}"),
        "clinfo, Termux's libraries first": _clinfo(f"{ours}:{VENDOR}"),
        f"loading {DRIVER}": _ask(str(DRIVER)),
        "loading libOpenCL.so": _ask("libOpenCL.so"),
    }
    told = {how: each.text for how, each in found.items()}
    if not DRIVER.exists() and not any(each.found for each in found.values()):
        return unknown(f"there is no {DRIVER}", **told)
    first, second, by_path, _ = (each.found for each in found.values())
    as_we_say = bool(first or by_path) and not second
    return judged(as_we_say, "; ".join(f"{how}: {text}" for how, text in told.items()), **told)


def _clinfo(libraries: str) -> Platforms:
    done = _run(["clinfo", "-l"], {**os.environ, "LD_LIBRARY_PATH": libraries})
    if isinstance(done, Platforms):
        return done
    if done.returncode != 0:
        return Platforms(0, f"ended with {done.returncode}")
    names = re.findall(r"^Platform #\d+: *(.*)$", done.stdout, re.MULTILINE)
    return Platforms(len(names), f"{len(names)} platforms {', '.join(names)}".strip())


def _ask(library: str) -> Platforms:
    done = _run([sys.executable, "-c", ASK, library], dict(os.environ))
    if isinstance(done, Platforms):
        return done
    lines = (done.stdout or done.stderr).strip().splitlines()
    last = lines[-1][:200] if lines else "nothing"
    return Platforms(int(last) if last.isdecimal() else 0, last)


def _run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str] | Platforms:
    """What it printed; or none found, and why."""
    try:
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Platforms(0, f"no answer within {PATIENCE_S:g} s")
    except OSError as error:
        return Platforms(0, f"not to be had: {error.strerror}")
