"""Finds the OpenCL device and describes its identity and limits."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phone_agent.contract.errors import AgentError, ErrorCode
from phone_agent.core.build import cache_dir

# The Adreno driver is not registered with any loader: load it by path before pyopencl searches for one.
VENDOR_DRIVER = Path("/vendor/lib64/libOpenCL.so")


class NoDeviceError(AgentError):
    """No usable OpenCL device. The message says what was searched for, and what to do."""

    code = ErrorCode.NO_OPENCL_DEVICE


class DeviceError(AgentError):
    """The device failed during computation. The message contains the output of the driver."""

    code = ErrorCode.OPENCL_FAILED


@dataclass(frozen=True)
class Identity:
    """Identifies the device and driver that a measurement is valid for."""

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
    unified: bool  # host and device share memory


@dataclass(frozen=True)
class Device:
    handle: Any
    context: Any
    identity: Identity
    limits: Limits

    @property
    def sub_buffer_alignment(self) -> int:
        """Bytes. The device reports bits."""
        return max(1, int(self.handle.mem_base_addr_align) // 8)

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Raise a DeviceError for any error of OpenCL in this block."""
        cl = load_pyopencl()
        try:
            yield
        except cl.Error as error:
            raise DeviceError(
                f"OpenCL device {self.identity.device} failed: {_first_cause(error, cl.Error)}; "
                "use --backend cpu if it fails again"
            ) from error


@cache
def find_device() -> Device:
    """The best device, preferably a GPU. Always the same one within a process."""
    cl = load_pyopencl()
    found = [(platform, device) for platform in _platforms(cl) for device in _devices(cl, platform)]
    if not found:
        raise NoDeviceError(f"no OpenCL device found; {_advice()}")
    platform, device = min(found, key=lambda pair: _rank(cl, pair[1]))
    try:
        context = cl.Context([device])
        return Device(device, context, _identity(platform, device), _limits(cl, device))
    except cl.Error as error:
        raise NoDeviceError(f"OpenCL device {device.name.strip()} cannot be used: {error}; {_advice()}") from None


@cache
def load_pyopencl() -> Any:
    """pyopencl, with the vendor driver of the phone if there is one. Its caches are in our directory, or off."""
    load_vendor_driver()  # if that fails, pyopencl searches for a driver itself
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    os.environ.setdefault("POCL_CACHE_DIR", str(cache_dir() / "pocl"))
    try:
        import pyopencl as cl
    except ImportError as error:
        raise NoDeviceError(f"pyopencl cannot be loaded ({error}); {_install_hint()}") from None
    return cl


@cache
def load_vendor_driver() -> str:
    """Load the vendor driver of the phone, if there is one. Returns the error of the linker, or an empty string."""
    if not VENDOR_DRIVER.exists():
        return ""
    try:
        ctypes.CDLL(str(VENDOR_DRIVER), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return ""


def _first_cause(error: BaseException, kind: type[BaseException]) -> BaseException:
    """The first error of this kind. Later ones occurred while it was handled: a lost device fails every call."""
    while isinstance(error.__context__, kind):
        error = error.__context__
    return error


def _platforms(cl: Any) -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error as error:  # a loader without drivers raises an error
        raise NoDeviceError(f"no OpenCL platform found ({error}); {_advice()}") from None


def _devices(cl: Any, platform: Any) -> Iterator[Any]:
    with suppress(cl.Error):  # a platform without devices may raise an error
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


def _install_hint() -> str:
    if VENDOR_DRIVER.exists():
        return "clusterctl provision builds it on phones"
    return f"phones need {VENDOR_DRIVER} for it, which is missing; on a computer: pip install pyopencl"


def _advice() -> str:
    if not VENDOR_DRIVER.exists():
        return f"{VENDOR_DRIVER} is missing, and the OpenCL loader found no driver (on Debian, install pocl-opencl-icd)"
    if error := load_vendor_driver():
        return f"{VENDOR_DRIVER} does not load: {error}"
    return f"{VENDOR_DRIVER} was loaded"
