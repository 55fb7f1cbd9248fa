"""Find and load the core. A phone's bundle contains it; on a computer with the sources it is built on first use."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core import build, ops

SHIPPED = Path(__file__).parent / "lib" / build.LIBRARY
ELF_HEADER = 64
REMEDY = "provision the phone again; on a computer with the sources, delete the file to rebuild it"


class CoreError(AgentError):
    """The core cannot be loaded, or cannot do what was asked."""

    code = ErrorCode.CORE_UNUSABLE


@cache
def library() -> ctypes.CDLL:
    """The core for this machine."""
    return load(SHIPPED if SHIPPED.is_file() else built_here())


def built_here() -> Path:
    """Build it from the sources, which a phone does not have."""
    if not build.SOURCES.is_dir():
        raise CoreError(f"{SHIPPED} is missing: provision this phone again (clusterctl provision)")
    return build.cached(build.host_target())


def load(path: Path) -> ctypes.CDLL:
    _check_file(path)
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise CoreError(f"{path} cannot be loaded: {error}: {REMEDY}") from None
    try:
        return _declare(core, path)
    except AttributeError as error:
        raise CoreError(f"{path} is not a core: {error}: {REMEDY}") from None


def _check_file(path: Path) -> None:
    """Check before loading: the loader misreports a library for another processor, and may crash on a truncated one."""
    try:
        with path.open("rb") as file:
            header = file.read(ELF_HEADER)
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise CoreError(f"{path} cannot be read: {error.strerror}: {REMEDY}") from None
    made_for, machine = _machine(header), os.uname().machine
    if made_for != machine:
        raise CoreError(f"{path} is for {made_for or 'no known'} processors, this is {machine}: {REMEDY}")
    whole = _whole_size(header)
    if size < whole:
        raise CoreError(f"{path} is truncated: {size} of {whole} bytes: {REMEDY}")


def _machine(header: bytes) -> str | None:
    """The processor of a 64-bit ELF file, as uname calls it."""
    known = {62: "x86_64", 183: "aarch64"}
    return known.get(int.from_bytes(header[18:20], "little")) if header.startswith(b"\x7fELF\x02\x01") else None


def _whole_size(header: bytes) -> int:
    """The size of the whole file: linkers put the section header table last."""
    if len(header) < ELF_HEADER:
        return ELF_HEADER
    place, entry, entries = (int.from_bytes(header[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62)))
    return place + entry * entries


def isas(core: ctypes.CDLL) -> tuple[str, ...]:
    """The instruction sets that this processor supports, best first."""
    names = [core.core_isa_name(index).decode() for index in range(core.core_isa_count())]
    return tuple(name for index, name in enumerate(names) if core.core_isa_supported(index))


def isa_index(core: ctypes.CDLL, wanted: str | None) -> int:
    """The index of `wanted`, of CLUSTERCTL_ISA, or of the best instruction set, in this order."""
    names = [core.core_isa_name(index).decode() for index in range(core.core_isa_count())]
    here = isas(core)
    wanted = wanted or os.environ.get("CLUSTERCTL_ISA") or here[0]
    if wanted not in names:
        raise CoreError(f"the core has no '{wanted}' kernels; it has: {', '.join(names)}")
    if wanted not in here:
        raise CoreError(f"this processor cannot run the core's {wanted} kernels; it can run: {', '.join(here)}")
    return names.index(wanted)


def _declare(core: ctypes.CDLL, path: Path) -> ctypes.CDLL:
    i32, pointer = ctypes.c_int32, ctypes.c_void_p
    _function(core, "core_abi", i32)
    if core.core_abi() != ops.ABI:
        raise CoreError(f"{path} has ABI version {core.core_abi()}, this agent needs {ops.ABI}: {REMEDY}")
    _function(core, "core_sizeof", i32, i32)
    _function(core, "core_isa_count", i32)
    _function(core, "core_isa_name", ctypes.c_char_p, i32)
    _function(core, "core_isa_supported", i32, i32)
    _function(core, "core_lanes", i32, i32)
    _function(core, "core_workspace", ctypes.c_int64, i32, i32, i32, pointer)
    _function(core, "core_pool_init", None, pointer, i32, i32, pointer)
    _function(core, "core_pool_work", None, pointer, i32)
    _function(core, "core_pool_shutdown", None, pointer)
    _function(core, "core_pool_run", None, pointer, pointer, i32, pointer)
    _function(core, "core_allreduce_reset", None, pointer)
    _function(core, "core_allreduce_run", i32, pointer)
    return core


def _function(core: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> None:
    function = getattr(core, name)
    function.restype, function.argtypes = result, list(arguments)
