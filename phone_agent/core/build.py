"""Compile the core with zig's clang, for this computer or for a phone.

The library depends on nothing, not even on libc. So the one for phones can be built on any computer.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from phone_agent.contract import directory_cache
from phone_agent.contract.errors import AgentError, ErrorCode

SOURCES = Path(__file__).parent / "src"
UNITS = SOURCES / "units"  # each is compiled once per ISA
LIBRARY = "libcore.so"


class BuildError(AgentError):
    """The compiler is missing or failed; the message contains its output."""

    code = ErrorCode.CORE_BUILD_FAILED


@dataclass(frozen=True)
class Isa:
    """One variant of the kernels: its header in src/isa, and the processor that the compiler may assume."""

    name: str
    header: str
    cpu: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    name: str
    triple: str
    baseline: str
    isas: tuple[Isa, ...]


X86_64 = Target(
    "x86_64-linux",
    "x86_64-linux-musl",
    "x86_64",
    (
        Isa("avx512", "avx512", "x86_64_v4", ("-mprefer-vector-width=512",)),
        Isa("avx2", "avx2", "x86_64_v3"),
        Isa("sse2", "sse2", "x86_64"),
    ),
)
# The instruction set of the Cortex-A76 with generic scheduling: tuned for cortex_a76 or neoverse_n1, the kernels take
# 4 % more instructions and cycles (benchmarks/neon.py).
_A76 = "generic+v8_2a+dotprod+fullfp16"
_NEON = (Isa("neon-fp16", "neon", _A76), Isa("neon", "neon", "generic"))
AARCH64_ANDROID = Target("aarch64-android", "aarch64-linux-android", "generic", _NEON)
AARCH64_LINUX = Target("aarch64-linux", "aarch64-linux-musl", "generic", _NEON)

_COMPILE = [
    "-std=c17",
    "-O3",
    "-g0",
    "-fPIC",
    "-ffreestanding",
    "-nostdlib",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fomit-frame-pointer",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-function",
]
_LINK = [
    "-shared",
    "-nostdlib",
    "-fvisibility=hidden",
    "-Wl,--no-undefined",
    "-Wl,-z,max-page-size=16384",
    "-Wl,-z,noexecstack",
    "-Wl,--build-id=none",
    "-Wl,-s",
    "-Wl,--hash-style=both",
]
_PROGRAM = ["-static", "-nostdlib", "-Wl,--build-id=none"]

_listeners: list[Callable[[int, int], None]] = []


def host_target() -> Target:
    """The target of the machine that this Python runs on."""
    machine = os.uname().machine
    for target in (X86_64, AARCH64_LINUX):
        if target.name.startswith(machine):
            return target
    raise BuildError(f"the core has no kernels for {machine} processors, only for x86_64 and aarch64")


def fingerprint(target: Target) -> str:
    """A hash of sources, flags, target and compiler version, which names a built library."""
    digest = hashlib.sha256(repr((target, _COMPILE, _LINK, _compiler_version())).encode())
    for source in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(str(source.relative_to(SOURCES)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compiler_version() -> str | None:
    try:
        return metadata.version("ziglang")
    except metadata.PackageNotFoundError:
        return None


def cached(target: Target) -> Path:
    """The library for these sources, built if it is not in the cache."""
    out = cache_dir() / f"core-{target.name}-{fingerprint(target)}"
    if not directory_cache.use(out) or not (out / LIBRARY).is_file():
        with _alone(out):
            if not (out / LIBRARY).is_file():  # no other process built it while this one waited
                build(target, out)
        directory_cache.prune(out)
    return out / LIBRARY


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Lock out other processes: the ranks of a test start together and would all compile."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_dir() -> Path:
    """orchestrator.paths has the same rule; the agent does not import it."""
    if chosen := os.environ.get("CLUSTERCTL_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "clusterctl"


def build(target: Target, out: Path) -> Path:
    """Write libcore.so into `out`, atomically, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".core-") as scratch:
        made = Path(scratch) / LIBRARY
        _zig("cc", "-target", target.triple, *_LINK, *_objects(target, Path(scratch)), "-o", str(made))
        return made.replace(out / LIBRARY)


def build_program(target: Target, source: Path, out: Path) -> Path:
    """Link the core with a program that has its own _start, to run in an emulator. Keeps the symbols."""
    with tempfile.TemporaryDirectory(prefix=".core-") as scratch:
        own = _compile(target, Path(scratch) / "program.o", source, target.baseline, f"-I{SOURCES}")
        _zig("cc", "-target", target.triple, *_PROGRAM, own, *_objects(target, Path(scratch)), "-o", str(out))
    return out


def build_library(target: Target, source: Path, out: Path) -> Path:
    """Compile one source into a shared library, without the core; atomically as well."""
    return _build_alone(target, source, out, _LINK)


def build_executable(target: Target, source: Path, out: Path) -> Path:
    """Compile one source with its own _start into a static program, without the core; atomically as well."""
    return _build_alone(target, source, out, [*_PROGRAM, "-Wl,-s"])


def _build_alone(target: Target, source: Path, out: Path, link: list[str]) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as scratch:
        made = Path(scratch) / out.name
        own = _compile(target, Path(scratch) / "source.o", source, target.baseline)
        _zig("cc", "-target", target.triple, *link, own, "-o", str(made))
        return made.replace(out)


@contextmanager
def compile_progress(callback: Callable[[int, int], None]) -> Iterator[None]:
    """Compiling takes about a minute of CPU time: `callback` gets the number of files done, and of all files."""
    _listeners.append(callback)
    try:
        yield
    finally:
        _listeners.remove(callback)


def _report(done: int, total: int) -> None:
    for listener in _listeners:
        listener(done, total)


def _objects(target: Target, scratch: Path) -> list[str]:
    with ThreadPoolExecutor() as pool:
        kernels = [
            pool.submit(
                _compile, target, scratch / f"{isa.name}-{unit.stem}.o", unit, isa.cpu, *isa_flags(isa)
            )
            for unit in sorted(UNITS.glob("*.c")) for isa in target.isas
        ]  # fmt: skip
        # These must run on any processor: they decide which kernels it can run.
        others = [
            pool.submit(_compile, target, scratch / f"{name}.o", SOURCES / f"{name}.c", target.baseline, "-fno-builtin")
            for name in ("thread_pool", "ring_allreduce", "isa_dispatch", "memory")
        ]
        jobs = [*kernels, *others]
        _report(0, len(jobs))
        for done, _ in enumerate(as_completed(jobs), start=1):
            _report(done, len(jobs))
        return [job.result() for job in jobs]


def isa_flags(isa: Isa) -> list[str]:
    return [f'-DISA_HEADER="../isa/{isa.header}.h"', f"-I{SOURCES}", *isa.flags]


def _compile(target: Target, made: Path, source: Path, cpu: str, *flags: str) -> str:
    common = ("-target", target.triple, f"-mcpu={cpu}", *_COMPILE)
    _zig("cc", *common, *flags, "-c", str(source), "-o", str(made))
    return str(made)


def _zig(*arguments: str) -> None:
    if find_spec("ziglang") is None:
        raise BuildError("the core's compiler is missing: pip install ziglang")
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(cache_dir() / "zig"), **os.environ}
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise BuildError(f"zig {' '.join(arguments[:3])}: exit code {done.returncode}\n{done.stderr.strip()}")
