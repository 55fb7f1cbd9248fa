"""Run aarch64 programs through binfmt_misc and qemu.

Since Linux 6.7 a user namespace can have its own binfmt_misc. The lab uses one, which disappears with the lab; the
host's registrations are not touched. If qemu is already registered on the host, as by Debian's qemu-user-static, that
registration is used. Flag F makes the kernel open the emulator at registration, so phones need not see the file.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from orchestrator.lab import syscalls

EMULATOR: Final = "qemu-aarch64-static"
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
_HANDLER: Final = "qemu-aarch64"

# Start of an ELF header: 64 bits, little endian, executable or shared object (type 2 or 3), machine 183.
_MAGIC: Final = bytes.fromhex("7f454c460201010000000000000000000200b700")
_MASK: Final = bytes.fromhex("ffffffffffffff00fffffffffffffffffeffffff")
_FLAGS: Final = "PF"  # P: preserve argv[0]


def is_registered_on_host() -> bool:
    """Whether the host runs aarch64 programs in all namespaces."""
    try:
        enabled, *rest = (_BINFMT / _HANDLER).read_text().splitlines()
    except (OSError, ValueError):
        return False
    return enabled == "enabled" and any(line.startswith("flags:") and "F" in line for line in rest)


def register() -> None:
    """Register qemu in this user namespace, which must be new, for the lifetime of this mount namespace."""
    try:
        syscalls.mount("binfmt_misc", _BINFMT, "binfmt_misc")
    except OSError as error:
        why = "on kernels older than 6.7, register qemu on the host: apt-get install qemu-user-static binfmt-support"
        raise OSError(error.errno, f"binfmt_misc: {error.strerror} ({why})") from None
    emulator = shutil.which(EMULATOR)
    (_BINFMT / "register").write_text(f":{_HANDLER}:M::{_escaped(_MAGIC)}:{_escaped(_MASK)}:{emulator}:{_FLAGS}")


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)
