"""Makes what aarch64 labs need and this computer does not have yet: python -m orchestrator.lab.arch."""

from __future__ import annotations

import sys

from orchestrator.errors import ClusterctlError
from orchestrator.lab.arch.userland import ensure


def _log(message: str) -> None:
    sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    try:
        _log(f"aarch64 labs take their programs from {ensure(_log)}")
    except ClusterctlError as error:
        sys.exit(f"error: {error.message}" + (f"\ntry: {error.remedy}" if error.remedy else ""))
