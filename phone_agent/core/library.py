"""Finds and loads the core. A phone's bundle carries it, built for phones; elsewhere it is built when it is missing."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from phone_agent.core import build, ops
from phone_agent.errors import AgentError

SHIPPED = Path(__file__).parent / "lib" / build.LIBRARY
REMEDY = "provision the phone again, or, on a computer with the sources, delete that file: it is built anew"


class CoreError(AgentError):
    """The core cannot be loaded, or cannot do what was asked."""


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
    machine = os.uname().machine
    made_for = _machine(path)
    if made_for != machine:
        raise CoreError(f"{path} is for {made_for or 'no known'} processors, this is {machine}: {REMEDY}")
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise CoreError(f"{path} cannot be loaded: {error}: {REMEDY}") from None
    try:
        return _declare(core, path)
    except AttributeError as error:
        raise CoreError(f"{path} is not a core: {error}: {REMEDY}") from None


def _machine(path: Path) -> str | None:
    """What processor an ELF file is for, as uname calls it. The loader's own words for the wrong one mislead."""
    try:
        with path.open("rb") as file:
            start = file.read(20)
    except OSError as error:
        raise CoreError(f"{path} cannot be read: {error.strerror}: {REMEDY}") from None
    known = {62: "x86_64", 183: "aarch64"}
    return known.get(int.from_bytes(start[18:20], "little")) if start.startswith(b"\x7fELF") else None


def isas(core: ctypes.CDLL) -> tuple[str, ...]:
    """Those this processor can run, best first."""
    names = [core.core_isa_name(index).decode() for index in range(core.core_isa_count())]
    return tuple(name for index, name in enumerate(names) if core.core_isa_runs_here(index))


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
    _function(core, "core_isa_runs_here", i32, i32)
    _function(core, "core_lanes", i32, i32)
    _function(core, "core_workspace", ctypes.c_int64, i32, i32, i32, pointer)
    _function(core, "core_open", None, pointer, i32, i32, pointer)
    _function(core, "core_work", None, pointer, i32)
    _function(core, "core_close", None, pointer)
    _function(core, "core_run", None, pointer, pointer, i32, pointer)
    return core


def _function(core: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> None:
    function = getattr(core, name)
    function.restype, function.argtypes = result, list(arguments)
