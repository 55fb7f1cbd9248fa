"""Finds the device that computes, and says what it is and can do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core.build import cache_dir

# Adreno's driver registers with no loader: whoever wants it loads it by name, before pyopencl looks for one of its own.
VENDOR_DRIVER = Path("/vendor/lib64/libOpenCL.so")


class NoDeviceError(AgentError):
    """There is nothing to compute on; says what was looked for, and what to do."""

    code = ErrorCode.NO_OPENCL_DEVICE


class DeviceError(AgentError):
    """The device failed while it computed; carries the driver's words."""

    code = ErrorCode.OPENCL_FAILED


@dataclass(frozen=True)
class Identity:
    """What a measurement on this device holds for."""

    platform: str
    device: str
    driver: str
    version: str


@dataclass(frozen=True)
class Limits:
    kind: str  # gpu, cpu or accelerator
    compute_units: int
    work_group: int
    local_bytes: int
    allocation_bytes: int
    memory_bytes: int
    unified: bool  # the host's memory is the device's


@dataclass(frozen=True)
class Device:
    handle: Any
    context: Any
    identity: Identity
    limits: Limits


@cache
def find_device() -> Device:
    """The best there is: a GPU before all else. The same one every time in a process."""
    cl = load_pyopencl()
    found = [(platform, device) for platform in _platforms(cl) for device in _devices(cl, platform)]
    if not found:
        raise NoDeviceError(f"OpenCL has no device here; {_advice()}")
    platform, device = min(found, key=lambda pair: _rank(cl, pair[1]))
    try:
        context = cl.Context([device])
        return Device(device, context, _identity(platform, device), _limits(cl, device))
    except cl.Error as error:
        raise NoDeviceError(f"OpenCL device {device.name.strip()} cannot be used: {error}; {_advice()}") from None


@cache
def load_pyopencl() -> Any:
    """pyopencl, with the phone's own driver behind it where there is one. Its caches are ours, or off."""
    load_vendor_driver()  # if it does not load, pyopencl's own search decides
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    os.environ.setdefault("POCL_CACHE_DIR", str(cache_dir() / "pocl"))
    try:
        import pyopencl as cl
    except ImportError as error:
        raise NoDeviceError(f"pyopencl cannot be loaded ({error}); {_how_to_get_it()}") from None
    return cl


@cache
def load_vendor_driver() -> str:
    """The phone's own driver, where there is one. What the linker says against it; empty: nothing."""
    if not VENDOR_DRIVER.exists():
        return ""
    try:
        ctypes.CDLL(str(VENDOR_DRIVER), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return ""


def _platforms(cl: Any) -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error as error:  # a loader that finds no driver says so by an error
        raise NoDeviceError(f"OpenCL has no platform here ({error}); {_advice()}") from None


def _devices(cl: Any, platform: Any) -> Iterator[Any]:
    with suppress(cl.Error):  # a platform without devices may say so by an error
        yield from (device for device in platform.get_devices() if device.available and device.compiler_available)


def _rank(cl: Any, device: Any) -> int:
    return ("gpu", "accelerator", "cpu").index(_kind(cl, device))


def _kind(cl: Any, device: Any) -> str:
    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _identity(platform: Any, device: Any) -> Identity:
    texts = (platform.name, device.name, device.driver_version, device.version)
    return Identity(*(text.strip() for text in texts))


def _limits(cl: Any, device: Any) -> Limits:
    return Limits(
        kind=_kind(cl, device),
        compute_units=device.max_compute_units,
        work_group=device.max_work_group_size,
        local_bytes=device.local_mem_size,
        allocation_bytes=device.max_mem_alloc_size,
        memory_bytes=device.global_mem_size,
        unified=bool(device.host_unified_memory),
    )


def _how_to_get_it() -> str:
    if VENDOR_DRIVER.exists():
        return "clusterctl provision builds it for phones"
    return f"phones need {VENDOR_DRIVER} for it, which is missing here; on a computer: pip install pyopencl"


def _advice() -> str:
    if not VENDOR_DRIVER.exists():
        return f"there is no {VENDOR_DRIVER}, and no driver that the OpenCL loader knows (on Debian: pocl-opencl-icd)"
    if refused := load_vendor_driver():
        return f"{VENDOR_DRIVER} does not load: {refused}"
    return f"{VENDOR_DRIVER} was loaded, by its path"
