"""python -m orchestrator.lab.probe MODE ARCH: test whether a lab mode works on this host, and print the result."""

from __future__ import annotations

import sys

from orchestrator.lab import links
from orchestrator.lab.config import Arch, LabConfig
from orchestrator.lab.identity import make_user_switch
from orchestrator.lab.namespaces import create_lab_namespaces
from orchestrator.lab.spec import LabSpec, Mode

AVAILABLE = "available"


def probe_mode(mode: Mode, arch: Arch) -> str:
    """Exercise every kernel feature that a lab needs. Afterwards this process can only exit."""
    spec = LabSpec(mode, LabConfig(1, arch=arch))
    try:
        if mode is not Mode.LOOPBACK:
            create_lab_namespaces(mode, arch)
            links.configure(*links.switch_commands(spec))
        make_user_switch(mode, spec.phones[0])()
    except OSError as error:
        return error.strerror or str(error)
    return AVAILABLE


if __name__ == "__main__":
    sys.stdout.write(probe_mode(Mode(sys.argv[1]), Arch(sys.argv[2])))
