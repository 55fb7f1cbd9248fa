"""A bare Termux whose package manager is real and whose programs are this computer's.

    write_bootstrap   $PREFIX and $HOME as the Termux app's bootstrap leaves them, plus openssh
    write_system      Android's own side: /system/bin, /sys/class/thermal
    build_mirror      an apt repository laid out as Termux's main one
    apply_scenario    change what a phone reports about itself, while it runs
    told              what it was told

docs/design/virtual-phones.md says what is real and what is not.
"""

from __future__ import annotations

from orchestrator.lab.termux.bootstrap import write_bootstrap
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.mirror import build_mirror
from orchestrator.lab.termux.scenario import HABITS, KEYS, apply_scenario, told
from orchestrator.lab.termux.system import write_system

__all__ = [
    "HABITS",
    "KEYS",
    "HostPrograms",
    "apply_scenario",
    "build_mirror",
    "told",
    "write_bootstrap",
    "write_system",
]
