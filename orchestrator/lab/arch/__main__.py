"""Makes what aarch64 labs need and this computer does not have yet: python -m orchestrator.lab.arch."""

from __future__ import annotations

import sys

from orchestrator.errors import ClusterctlError
from orchestrator.lab.arch.userland import ensure
from orchestrator.view.console import note, print_error

if __name__ == "__main__":
    try:
        note(f"aarch64 labs take their programs from {ensure(note)}")
    except ClusterctlError as error:
        print_error(error)
        sys.exit(1)
