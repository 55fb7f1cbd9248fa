"""OpenCL programs: each source file is compiled once per set of preprocessor definitions."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from phone_agent.backends.opencl.device import Device, Limits, load_pyopencl
from phone_agent.contract.errors import AgentError, ErrorCode

PACKAGE = Path(__file__).parent
SOURCES = PACKAGE / "kernels"
COMMON = "common.cl"
OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")

Define = int | float | str
Defines = tuple[tuple[str, Define], ...]


def kernels_id(package: Path = PACKAGE) -> str:
    """Hash of the kernels and of how they are launched: tile sizes were measured for these."""
    files = sorted((*package.glob("kernels/*.cl"), *package.glob("launches/*.py"), *package.glob("tiles.py")))
    content = b"".join(f"{path.name}\0".encode() + path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()[:16]


class ProgramError(AgentError):
    """The driver cannot compile or run a kernel. The message contains its output."""

    code = ErrorCode.OPENCL_FAILED


@dataclass
class ProgramCache:
    """Compiled programs of one device. `kernel` returns a new kernel each time, since arguments belong to it."""

    device: Device
    _built: dict[tuple[str, Defines], Any] = field(default_factory=dict)
    _building: Lock = field(
        default_factory=Lock
    )  # pyopencl generates code for each kernel and is not thread-safe there

    @property
    def limits(self) -> Limits:
        return self.device.limits

    def max_work_group(self, kernel: Any) -> int:
        """Largest work-group of this kernel."""
        most: int = kernel.get_work_group_info(
            load_pyopencl().kernel_work_group_info.WORK_GROUP_SIZE, self.device.handle
        )
        return most

    def kernel(self, file: str, name: str, defines: dict[str, Define]) -> Any:
        """Kernel `name` of kernels/`file`.cl, compiled with these definitions."""
        cl = load_pyopencl()
        key = file, tuple(sorted(defines.items()))
        with self._building:
            if key not in self._built:
                self._built[key] = self._build(*key)
            try:
                return cl.Kernel(self._built[key], name)
            except cl.Error as error:
                device = self.device.identity.device
                raise ProgramError(f"{file}.cl has no kernel {name} on {device}: {error}") from None

    def _build(self, file: str, defines: Defines) -> Any:
        cl = load_pyopencl()
        source = "".join((SOURCES / each).read_text() for each in (COMMON, f"{file}.cl"))
        options = [*OPTIONS, *(f"-D{name}={_literal(value)}" for name, value in defines)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # compiler output of successful builds
                return cl.Program(self.device.context, source).build(options)
        except cl.Error as error:
            flags = " ".join(options[len(OPTIONS) :])
            raise ProgramError(f"{file}.cl ({flags}) on {self.device.identity.device}: {error}") from None


def _literal(value: Define) -> str:
    return f"{value!r}f" if isinstance(value, float) else str(int(value) if isinstance(value, bool) else value)
