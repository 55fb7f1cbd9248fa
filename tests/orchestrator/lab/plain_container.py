"""Run COMMAND as root in a container that may not create namespaces of any kind. Needs root.

Usage: python -m tests.orchestrator.lab.plain_container COMMAND…
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.lab import syscalls

_UIDS = 65536


def main() -> int:
    ready_read, ready_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    if (child := os.fork()) == 0:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        os.write(ready_write, b".")
        os.read(mapped_read, 1)
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
        os._exit(subprocess.run([*drop, *sys.argv[1:]], check=False).returncode)
    os.read(ready_read, 1)
    for kind in ("uid", "gid"):
        Path(f"/proc/{child}/{kind}_map").write_text(f"0 0 {_UIDS}")
    os.write(mapped_write, b".")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
