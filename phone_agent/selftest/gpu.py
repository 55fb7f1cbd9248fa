"""OpenCL: who finds the vendor's driver, and how. Which way a worker goes is found by `opencl.reach` each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


def opencl() -> Found:
    ours = Path(os.environ.get("PREFIX", "/usr")) / "lib"
    told = {
        "clinfo, vendor's libraries first": _clinfo(f"{VENDOR}:{ours}"),
        "clinfo, Termux's libraries first": _clinfo(f"{ours}:{VENDOR}"),
        f"loading {DRIVER}": _ask(str(DRIVER)),
        "loading libOpenCL.so": _ask("libOpenCL.so"),
    }
    if not DRIVER.exists() and not any(_platforms(each) for each in told.values()):
        return unknown(f"there is no {DRIVER}", **told)
    first, second, by_path, _ = map(_platforms, told.values())
    as_we_say = bool(first or by_path) and not second
    return judged(as_we_say, "; ".join(f"{how}: {said}" for how, said in told.items()), **told)


def _clinfo(libraries: str) -> str:
    return _said(["clinfo", "-l"], {**os.environ, "LD_LIBRARY_PATH": libraries})


def _ask(library: str) -> str:
    return _said([sys.executable, "-c", ASK, library], dict(os.environ))


def _said(argv: list[str], env: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE_S:g} s"
    except OSError as error:
        return f"not to be had: {error.strerror}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return (lines[-1] if lines else "nothing")[:200] if argv[0] != "clinfo" else _counted(done.stdout, done.returncode)


def _counted(listing: str, code: int) -> str:
    platforms = re.findall(r"^Platform #\d+: *(.*)$", listing, re.MULTILINE)
    return f"{len(platforms)} platforms {', '.join(platforms)}".strip() if code == 0 else f"ended with {code}"


def _platforms(said: str) -> int:
    match = re.match(r"(\d+)\b", said)
    return int(match[1]) if match else 0
