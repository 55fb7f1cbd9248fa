"""Wheels of mpi4py and pyopencl. PyPI has none for Termux, so phones build them.

A phone may be compromised: a wheel is installed on phones other than its builder only if a second phone of the cluster
built the same bytes. Wheels stay in the cluster where they were built; sources come from this computer's cache.

    pypi/<key>/mpi4py/      source of mpi4py, translated to C by Cython on this computer
    pypi/<key>/pyopencl/    source of pyopencl, with the pure Python modules that it imports
    pypi/<key>/build/       pure Python wheels that the build needs
    wheels/<abi>/<key>/     the built wheel and who built it; an ABI is a Python version, a platform and an Open MPI
                            version

The key is a hash of the pinned requirements in `provisioning/requirements` and of the build script.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.provision.background import run_in_background
from orchestrator.provision.failures import explain_failure
from orchestrator.provision.resources import read_script, read_text
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.files import write_bytes, write_json

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_BUILD_LIMIT: Final = 1800.0
_PIP_LIMIT: Final = 900.0
_MAX_WHEEL_BYTES: Final = 64 << 20
REQUIRED_BUILDS: Final = 2  # identical ones, before a wheel is installed on other phones
_RECORD: Final = "wheel.json"
_BUILD_DIRECTORY: Final = PurePosixPath(".clusterctl/build")

OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class Wheel:
    path: Path
    sha256: str
    builders: tuple[str, ...] = ()  # names of the phones that built exactly this wheel

    @property
    def is_confirmed(self) -> bool:
        return len(self.builders) >= REQUIRED_BUILDS


@dataclass(frozen=True)
class Sources:
    key: str
    path: Path


@dataclass(frozen=True)
class WheelRecipe:
    """How to build a module on a phone."""

    name: str
    requirements: tuple[str, ...]  # requirements files that pin its sources; the first pins the module itself
    files: tuple[str, ...]  # files of `provisioning/` that it includes
    script: str  # builds it on a phone
    prepare: Callable[[Path], None]  # writes the input of that script to scratch/phone

    @property
    def version(self) -> str:
        return pinned_version(self.name, self.requirements[0])


def pinned_version(module: str, requirements: str) -> str:
    file = f"requirements/{requirements}.txt"
    pinned = re.search(rf"^{module}==(\S+)", read_text(file), re.MULTILINE)
    if pinned is None:
        raise ClusterctlError(f"provisioning/{file} pins no version of {module}")
    return pinned[1]


class WheelStore:
    """`cache`: of sources, shared by all clusters. `wheels`: a directory of the cluster."""

    def __init__(self, cache: Path, wheels: Path, recipe: WheelRecipe) -> None:
        self._cache, self._wheels, self._recipe = cache, wheels, recipe
        self._lock = threading.Lock()  # two phones build at the same time
        texts = [read_text(f"requirements/{name}.txt") for name in recipe.requirements]
        texts += [read_text(name) for name in recipe.files]
        self._key = hashlib.sha256("\0".join([*texts, read_script(recipe.script)]).encode()).hexdigest()[:16]

    def find(self, abi: str) -> Wheel | None:
        """The wheel for an ABI, if there is one and it is intact."""
        directory = self._directory(abi)
        try:
            record = json.loads((directory / _RECORD).read_text())
            wheel = Wheel(directory / record["file"], record["sha256"], tuple(record["builders"]))
            return wheel if _sha256(wheel.path) == wheel.sha256 else None
        except (OSError, ValueError, KeyError):
            return None

    def build(self, connect: Callable[[], PhoneConnection], abi: str, on_message: OnMessage) -> None:
        """Build on a phone that has the compiler. The phone needs no network. Raises PhoneError."""
        sources, module = self.sources(on_message), self._recipe.name
        connect().put_tree(sources.path, _BUILD_DIRECTORY)
        job = run_in_background(
            connect, f"build-{module}", self._recipe.script, str(_BUILD_DIRECTORY), limit=_BUILD_LIMIT
        )
        if job.rc != 0:
            cause = explain_failure(job.log)
            raise PhoneError(
                f"building {module} failed: {cause.message}", code=cause.code, phase="build", remedy=cause.remedy
            )
        name = job.log.strip().splitlines()[-1].strip()
        if not re.fullmatch(rf"{module}-[\w.+-]+\.whl", name):
            raise PhoneError(
                f"building {module} produced no wheel: {name[:120]!r}", code=ErrorCode.PACKAGE_FAILED, phase="build"
            )
        data = connect().get(_BUILD_DIRECTORY / "out" / name, limit=_MAX_WHEEL_BYTES)
        connect().run(["rm", "-rf", "--", str(_BUILD_DIRECTORY)])
        self.add(abi, connect().phone.name, name, data)

    def sources(self, on_message: OnMessage) -> Sources:
        """Fetch and prepare the sources, once; later runs need no network."""
        path = self._cache / "pypi" / self._key
        if not path.exists():
            on_message(f"downloading the source of {self._recipe.name} (cached for later runs)")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as scratch:
                self._recipe.prepare(Path(scratch))
                (Path(scratch) / "phone").rename(path)
        return Sources(self._key, path)

    def _directory(self, abi: str) -> Path:
        return self._wheels / re.sub(r"[^\w.+-]", "_", abi) / self._key

    def add(self, abi: str, builder: str, name: str, data: bytes) -> Wheel:
        """Raises WheelMismatchError, and forgets the wheel, if another phone built a different one."""
        with self._lock:
            directory, sha256 = self._directory(abi), hashlib.sha256(data).hexdigest()
            before = self.find(abi)
            others = [each for each in before.builders if each != builder] if before else []
            if before and others and before.sha256 != sha256:
                (directory / _RECORD).unlink()
                raise WheelMismatchError(self._recipe.name, others[0], builder)
            wheel = Wheel(directory / name, sha256, (*others, builder))
            directory.mkdir(parents=True, exist_ok=True)
            write_bytes(wheel.path, data)
            write_json(directory / _RECORD, {"file": name, "sha256": sha256, "builders": wheel.builders})
            return wheel


class WheelMismatchError(PhoneError):
    """Two phones built different wheels from the same source."""

    def __init__(self, module: str, first: str, second: str) -> None:
        super().__init__(
            f"{first} and {second} built different wheels of {module} from the same source: their packages differ, or "
            "one of them was tampered with; the wheels were discarded",
            code=ErrorCode.PACKAGE_FAILED,
            phase="build",
            remedy=f"set up {first} and {second} again, then run clusterctl provision",
        )


def _prepare_mpi4py(scratch: Path) -> None:
    fetched, phone = scratch / "fetched", scratch / "phone"
    # The pinned hash is that of the source archive, so no package index can substitute a wheel.
    _pip("download", "mpi4py", "--no-binary=mpi4py", "-d", str(fetched))
    _unpack(require_portable(fetched)[0], phone / "mpi4py")
    _cythonize(scratch / "cython", phone / "mpi4py")
    _fetch_pure("phone-build", phone / "build")


def _prepare_pyopencl(scratch: Path) -> None:
    fetched, phone, source = scratch / "fetched", scratch / "phone", scratch / "phone/pyopencl"
    _fetch_pure("pyopencl-build", phone / "build")
    # pip runs the build backend to read name and version, so its tools must be installed.
    tools = scratch / "tools"
    _pip("install", "pyopencl-build", "--target", str(tools))
    from_source = ["--no-binary=pyopencl", "--no-build-isolation"]
    _pip("download", "pyopencl", *from_source, "-d", str(fetched), tools=tools)
    _unpack(require_portable(fetched)[0], source)
    _pip("install", "pyopencl-run", "--no-compile", "--target", str(scratch / "run"))
    for package in ("pytools", "platformdirs"):
        shutil.copytree(scratch / "run" / package, source / package)
    _pin_version(source / "pytools" / "version.py", "pytools", "pyopencl-run")
    _write_package(source / "typing_extensions", (scratch / "run/typing_extensions.py").read_text())
    _write_package(source / "siphash24", read_text("siphash24.py"))


def _write_package(directory: Path, text: str) -> None:
    """Turn a single-file module into a package, because the wheel is built from directories."""
    directory.mkdir()
    (directory / "__init__.py").write_text(text)


def _pin_version(file: Path, module: str, requirements: str) -> None:
    """Replace the metadata lookup by the version: inside another wheel the module has no metadata."""
    lookup = f'metadata.version("{module}")'
    text = file.read_text()
    if lookup not in text:
        raise ClusterctlError(f"{file.name} of {module} does not look up its version as expected")
    file.write_text(text.replace(lookup, repr(pinned_version(module, requirements))))


def _fetch_pure(requirements: str, directory: Path) -> None:
    universal = ["--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none"]
    _pip("download", requirements, *universal, "-d", str(directory))
    require_portable(directory)


def _pip(verb: str, requirements: str, *arguments: str, tools: Path | None = None) -> None:
    """Run pip on one of our requirements files, with the configuration of this computer."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(read_text(f"requirements/{requirements}.txt"))
        file.flush()
        command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", *arguments, "-r", file.name]
        environment = {**os.environ, "PYTHONPATH": str(tools)} if tools else None
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_PIP_LIMIT)
    if done.returncode != 0:
        raise ClusterctlError(
            f"pip {verb} failed for {requirements}.txt: {explain_failure(done.stderr).message}",
            remedy="check this computer's connection to PyPI (needed once, then cached)",
        )


def _unpack(archive: Path, destination: Path) -> None:
    destination.mkdir(parents=True)
    command = ["tar", "-xzf", str(archive), "--strip-components=1", "-C", str(destination)]
    subprocess.run(command, check=True, capture_output=True)


def _cythonize(tools: Path, source: Path) -> None:
    """Run Cython here: its output is the same for every platform, and on a phone it would take minutes."""
    _pip("install", "host-build", "--target", str(tools))
    command = [sys.executable, "conf/cythonize.py"]
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=_PIP_LIMIT
    )
    if done.returncode != 0:
        raise ClusterctlError(f"Cython failed on mpi4py: {explain_failure(done.stderr).message}")


def require_portable(directory: Path) -> list[Path]:
    """The files of a directory. Refuses wheels that are compiled for one platform."""
    files = sorted(directory.iterdir())
    for file in files:
        if not file.name.endswith((".tar.gz", "-none-any.whl")):
            raise ClusterctlError(f"{file.name} is compiled for this computer and would not run on phones")
    return files


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


MPI4PY: Final = WheelRecipe("mpi4py", ("mpi4py", "phone-build", "host-build"), (), "build-wheel", _prepare_mpi4py)
PYOPENCL: Final = WheelRecipe(
    "pyopencl",
    ("pyopencl", "pyopencl-build", "pyopencl-run"),
    ("siphash24.py",),
    "build-pyopencl",
    _prepare_pyopencl,
)
