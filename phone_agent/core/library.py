"""Finds and loads the core. A phone's bundle carries it, built for phones; elsewhere it is built when it is missing."""

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
REMEDY = "provision the phone again, or, on a computer with the sources, delete that file: it is built anew"


class CoreError(AgentError):
    """The core cannot be loaded, or cannot do what was asked."""

    code = ErrorCode.CORE_UNUSABLE


@cache
def library() -> ctypes.CDLL:
    """The core for this machine."""
    return load(SHIPPED if SHIPPED.is_file() else built_here())


def built_here() -> Path:
    """From the sources, where they are: not on a phone."""
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
    """The loader's own words for a library for another processor mislead, and of one cut off it may die without any."""
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
        raise CoreError(f"{path} is cut off: {size} of {whole} bytes are there: {REMEDY}")


def _machine(header: bytes) -> str | None:
    """What processor an ELF file of 64 bits is for, as uname calls it."""
    known = {62: "x86_64", 183: "aarch64"}
    return known.get(int.from_bytes(header[18:20], "little")) if header.startswith(b"\x7fELF\x02\x01") else None


def _whole_size(header: bytes) -> int:
    """Linkers put the table of sections last: what ends there is all of the file."""
    if len(header) < ELF_HEADER:
        return ELF_HEADER
    place, entry, entries = (int.from_bytes(header[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62)))
    return place + entry * entries


def isas(core: ctypes.CDLL) -> tuple[str, ...]:
    """Those this processor can run, best first."""
    names = [core.core_isa_name(index).decode() for index in range(core.core_isa_count())]
    return tuple(name for index, name in enumerate(names) if core.core_isa_supported(index))


def isa_index(core: ctypes.CDLL, wanted: str | None) -> int:
    """The best, unless one is named (or set in CLUSTERCTL_ISA)."""
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
        raise CoreError(f"the core {path} speaks version {core.core_abi()}, this agent {ops.ABI}: {REMEDY}")
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
