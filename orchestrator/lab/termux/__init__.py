"""A bare Termux with a real package manager, whose programs come from the host.

    write_bootstrap   $PREFIX and $HOME as the bootstrap of the Termux app leaves them, plus openssh
    write_system      the Android system files: /system/bin, /sys/class/thermal
    build_mirror      an apt repository with the layout of Termux's main repository
    read_setting      read a setting of a phone
    write_setting     change a setting of a phone while it runs

docs/design/virtual-phones.md lists what is real and what is simulated.
"""

from __future__ import annotations

from orchestrator.lab.termux.bootstrap import write_bootstrap
from orchestrator.lab.termux.host import HostPrograms
from orchestrator.lab.termux.mirror import build_mirror
from orchestrator.lab.termux.scenario import QUIRKS, SETTINGS, read_setting, write_setting
from orchestrator.lab.termux.system import write_system

__all__ = [
    "QUIRKS",
    "SETTINGS",
    "HostPrograms",
    "build_mirror",
    "read_setting",
    "write_bootstrap",
    "write_setting",
    "write_system",
]
