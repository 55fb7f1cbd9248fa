"""python -m orchestrator.lab.probe MODE ARCH: tries whether labs can be made this way, and says so."""

from __future__ import annotations

import sys

from orchestrator.lab import links
from orchestrator.lab.identity import user_switch
from orchestrator.lab.namespaces import enter_lab
from orchestrator.lab.shape import Arch, Shape
from orchestrator.lab.spec import LabSpec, Mode

POSSIBLE = "possible"


def attempt(mode: Mode, arch: Arch) -> str:
    """Everything a lab needs of the kernel, once. This process is of no other use afterwards."""
    spec = LabSpec(mode, Shape(1, arch=arch))
    try:
        if mode is not Mode.LOOPBACK:
            enter_lab(mode, arch)
            links.configure(*links.switches(spec))
        user_switch(mode, spec.phones[0])()
    except OSError as error:
        return error.strerror or str(error)
    return POSSIBLE


if __name__ == "__main__":
    sys.stdout.write(attempt(Mode(sys.argv[1]), Arch(sys.argv[2])))
