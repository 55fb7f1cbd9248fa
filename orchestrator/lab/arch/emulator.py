"""How this kernel comes to start aarch64 programs: binfmt_misc hands them to qemu.

Since Linux 6.7 a user namespace can have a binfmt_misc of its own. The lab gets one, and the kernel forgets it with
the lab: this computer's own list of formats is not touched. Where this computer has registered qemu for itself, as
Debian's qemu-user-static does, that is used. The flag F matters: the emulator is opened beforehand, so phones need
not see it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from orchestrator.lab import syscalls

EMULATOR: Final = "qemu-aarch64-static"
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
_HANDLER: Final = "qemu-aarch64"

# The start of an ELF header: 64 bits, little endian, a program or shared object (type 2 or 3), for processor 183.
_MAGIC: Final = bytes.fromhex("7f454c460201010000000000000000000200b700")
_MASK: Final = bytes.fromhex("ffffffffffffff00fffffffffffffffffeffffff")
_FLAGS: Final = "PF"  # P: qemu learns argv[0] as it was given


def is_registered_here() -> bool:
    """Whether this computer itself starts aarch64 programs, wherever they are."""
    try:
        enabled, *rest = (_BINFMT / _HANDLER).read_text().splitlines()
    except (OSError, ValueError):
        return False
    return enabled == "enabled" and any(line.startswith("flags:") and "F" in line for line in rest)


def register() -> None:
    """For this user namespace, which must be a new one, for as long as this mount namespace lives."""
    try:
        syscalls.mount("binfmt_misc", _BINFMT, "binfmt_misc")
    except OSError as error:
        why = "before Linux 6.7 only this computer can register qemu: apt-get install qemu-user-static binfmt-support"
        raise OSError(error.errno, f"binfmt_misc: {error.strerror} ({why})") from None
    emulator = shutil.which(EMULATOR)
    (_BINFMT / "register").write_text(f":{_HANDLER}:M::{_escaped(_MAGIC)}:{_escaped(_MASK)}:{emulator}:{_FLAGS}")


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)
