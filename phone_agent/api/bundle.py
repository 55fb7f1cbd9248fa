"""Files of the agent, as phones get them. Paths are relative to the directory that holds the package."""

from __future__ import annotations

from pathlib import Path

import phone_agent
from phone_agent import bind_shim, rank_launcher
from phone_agent.core import build, library
from phone_agent.core.build import BuildError, compile_progress

PACKAGE = Path(phone_agent.__file__).parent
CORE, BIND_SHIM, RANK_LAUNCHER = (
    path.relative_to(PACKAGE.parent) for path in (library.SHIPPED, bind_shim.SHIPPED, rank_launcher.SHIPPED)
)
SOURCES = ("*.py", "*.cl")


def source_files() -> dict[Path, Path]:
    """Python files and OpenCL kernels, by their path in the bundle."""
    found = (path for pattern in SOURCES for path in PACKAGE.rglob(pattern))
    return {path.relative_to(PACKAGE.parent): path for path in sorted(found) if "__pycache__" not in path.parts}


def native_files(*, android: bool) -> dict[Path, Path]:
    """Core, bind shim and rank launcher by their path in the bundle, built for aarch64 Android or for this computer.

    Built here: phones have neither the sources nor a compiler. Raises BuildError.
    """
    target = build.AARCH64_ANDROID if android else build.host_target()
    return {
        CORE: build.cached(target),
        BIND_SHIM: bind_shim.cached(target),
        RANK_LAUNCHER: rank_launcher.cached(target),
    }


def compile_core() -> None:
    """Compiles the compute core for this computer, unless that was done before. Raises BuildError."""
    if not library.SHIPPED.is_file():
        library.built_here()
