"""python -m orchestrator.lab.arch: download and unpack the arm64 userland, unless it is cached."""

from __future__ import annotations

import sys

from orchestrator.errors import ClusterctlError
from orchestrator.lab.arch.userland import ensure_userland


def _log(message: str) -> None:
    sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    try:
        _log(f"aarch64 userland: {ensure_userland(_log)}")
    except ClusterctlError as error:
        sys.exit(f"error: {error.message}" + (f"\ntry: {error.remedy}" if error.remedy else ""))
