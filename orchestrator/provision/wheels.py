"""mpi4py and pyopencl for phones: no wheel on PyPI fits them, so one phone of each kind builds it for all others.

    pypi/<key>/mpi4py/      its source, already translated to C by this computer's Cython
    pypi/<key>/pyopencl/    or pyopencl's, with the pure Python that it imports
    pypi/<key>/build/       what the building phone needs: pure Python wheels
    wheels/<abi>/<key>/     what it built; an ABI is a Python, a platform and an Open MPI

The key is a hash of the pinned requirements in `provisioning/requirements` and of the way it is built.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.provision.background import run_in_background
from orchestrator.provision.failures import explain
from orchestrator.provision.resources import read_text, script
from phone_agent.contract.errors import ErrorCode

if TYPE_CHECKING:
    from orchestrator.fleet import PhoneConnection

_BUILD_LIMIT: Final = 1800.0
_PIP_LIMIT: Final = 900.0
_LARGEST_WHEEL: Final = 64 << 20
_WORK: Final = PurePosixPath(".clusterctl/build")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Wheel:
    path: Path
    sha256: str


@dataclass(frozen=True)
class Sources:
    key: str
    path: Path


@dataclass(frozen=True)
class Recipe:
    """A module that phones build."""

    name: str
    requirements: tuple[str, ...]  # files that pin what it is made from; the first pins the module itself
    files: tuple[str, ...]  # of ours, which go into it
    script: str  # builds it on a phone
    prepare: Callable[[Path], None]  # makes scratch/phone, which is what that script is given

    @property
    def version(self) -> str:
        return pinned_version(self.name, self.requirements[0])


def pinned_version(module: str, requirements: str) -> str:
    file = f"requirements/{requirements}.txt"
    pinned = re.search(rf"^{module}==(\S+)", read_text(file), re.MULTILINE)
    if pinned is None:
        raise ClusterctlError(f"provisioning/{file} names no version of {module}")
    return pinned[1]


class WheelStore:
    def __init__(self, cache: Path, recipe: Recipe) -> None:
        self._cache = cache
        self._recipe = recipe
        texts = [read_text(f"requirements/{name}.txt") for name in recipe.requirements]
        texts += [read_text(name) for name in recipe.files]
        self._key = hashlib.sha256("\0".join([*texts, script(recipe.script)]).encode()).hexdigest()[:16]

    def find(self, abi: str) -> Wheel | None:
        """The wheel built earlier for an ABI, if it is still what it was."""
        directory = self._directory(abi)
        try:
            record = json.loads((directory / "wheel.json").read_text())
            wheel = Wheel(directory / record["file"], record["sha256"])
            return wheel if _sha256(wheel.path) == wheel.sha256 else None
        except (OSError, ValueError, KeyError):
            return None

    def build(self, connect: Callable[[], PhoneConnection], abi: str, progress: Progress) -> Wheel:
        """Builds on a phone that has the compiler; no network is used there."""
        sources, module = self.sources(progress), self._recipe.name
        connect().put_tree(sources.path, _WORK)
        job = run_in_background(connect, f"build-{module}", self._recipe.script, str(_WORK), limit=_BUILD_LIMIT)
        if job.rc != 0:
            cause = explain(job.log)
            raise PhoneError(
                f"building {module} failed: {cause.message}", code=cause.code, phase="build", remedy=cause.remedy
            )
        name = job.log.strip().splitlines()[-1].strip()
        if not re.fullmatch(rf"{module}-[\w.+-]+\.whl", name):
            raise PhoneError(
                f"building {module} left no wheel: {name[:120]!r}", code=ErrorCode.PACKAGE_FAILED, phase="build"
            )
        data = connect().get(_WORK / "out" / name, limit=_LARGEST_WHEEL)
        connect().run(["rm", "-rf", "--", str(_WORK)])
        return self._keep(abi, name, data)

    def sources(self, progress: Progress) -> Sources:
        """Fetched and prepared once; later runs need no network."""
        path = self._cache / "pypi" / self._key
        if not path.exists():
            progress(f"fetching the source of {self._recipe.name}, once for all phones")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as scratch:
                self._recipe.prepare(Path(scratch))
                (Path(scratch) / "phone").rename(path)
        return Sources(self._key, path)

    def _directory(self, abi: str) -> Path:
        return self._cache / "wheels" / re.sub(r"[^\w.+-]", "_", abi) / self._key

    def _keep(self, abi: str, name: str, data: bytes) -> Wheel:
        directory = self._directory(abi)
        directory.mkdir(parents=True, exist_ok=True)
        wheel = Wheel(directory / name, hashlib.sha256(data).hexdigest())
        wheel.path.write_bytes(data)
        record = directory / "wheel.json.new"
        record.write_text(json.dumps({"file": name, "sha256": wheel.sha256}))
        record.replace(directory / "wheel.json")
        return wheel


def _prepare_mpi4py(scratch: Path) -> None:
    fetched, phone = scratch / "fetched", scratch / "phone"
    # The pinned hash is of the source archive: no wheel can slip in, whatever index pip is configured with.
    _pip("download", "mpi4py", "--no-binary=mpi4py", "-d", str(fetched))
    _unpack(only_for_phones(fetched)[0], phone / "mpi4py")
    _translate(scratch / "cython", phone / "mpi4py")
    _fetch_pure("phone-build", phone / "build")


def _prepare_pyopencl(scratch: Path) -> None:
    fetched, phone, source = scratch / "fetched", scratch / "phone", scratch / "phone/pyopencl"
    _fetch_pure("pyopencl-build", phone / "build")
    # pip asks the source for its name and version, which takes what builds it; it is at hand already.
    tools = scratch / "tools"
    _pip("install", "pyopencl-build", "--target", str(tools))
    from_source = ["--no-binary=pyopencl", "--no-build-isolation"]
    _pip("download", "pyopencl", *from_source, "-d", str(fetched), tools=tools)
    _unpack(only_for_phones(fetched)[0], source)
    _pip("install", "pyopencl-run", "--no-compile", "--target", str(scratch / "run"))
    for package in ("pytools", "platformdirs"):
        shutil.copytree(scratch / "run" / package, source / package)
    _know_version(source / "pytools" / "version.py", "pytools", "pyopencl-run")
    _as_package(source / "typing_extensions", (scratch / "run/typing_extensions.py").read_text())
    _as_package(source / "siphash24", read_text("siphash24.py"))


def _as_package(directory: Path, text: str) -> None:
    """A module of one file: wheels are made from directories."""
    directory.mkdir()
    (directory / "__init__.py").write_text(text)


def _know_version(file: Path, module: str, requirements: str) -> None:
    """Inside another one's wheel it has no metadata to ask."""
    asked = f'metadata.version("{module}")'
    text = file.read_text()
    if asked not in text:
        raise ClusterctlError(f"{file.name} of {module} does not ask for its version as expected")
    file.write_text(text.replace(asked, repr(pinned_version(module, requirements))))


def _fetch_pure(requirements: str, directory: Path) -> None:
    universal = ["--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none"]
    _pip("download", requirements, *universal, "-d", str(directory))
    only_for_phones(directory)


def _pip(verb: str, requirements: str, *arguments: str, tools: Path | None = None) -> None:
    """This computer's pip, as its owner has configured it, on one of our requirements files."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write(read_text(f"requirements/{requirements}.txt"))
        listed.flush()
        command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", *arguments, "-r", listed.name]
        environment = {**os.environ, "PYTHONPATH": str(tools)} if tools else None
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_PIP_LIMIT)
    if done.returncode != 0:
        raise ClusterctlError(
            f"pip cannot {verb} what {requirements} needs: {explain(done.stderr).message}",
            remedy="check this computer's connection to PyPI; it is needed once",
        )


def _unpack(archive: Path, destination: Path) -> None:
    destination.mkdir(parents=True)
    command = ["tar", "-xzf", str(archive), "--strip-components=1", "-C", str(destination)]
    subprocess.run(command, check=True, capture_output=True)


def _translate(tools: Path, source: Path) -> None:
    """Cython writes the same C for every platform; on a phone it would take minutes."""
    _pip("install", "host-build", "--target", str(tools))
    command = [sys.executable, "conf/cythonize.py"]
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    done = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False, timeout=_PIP_LIMIT
    )
    if done.returncode != 0:
        raise ClusterctlError(f"cannot translate mpi4py to C: {explain(done.stderr).message}")


def only_for_phones(directory: Path) -> list[Path]:
    """Refuses what no phone could use: a wheel compiled for this computer."""
    files = sorted(directory.iterdir())
    for file in files:
        if not file.name.endswith((".tar.gz", "-none-any.whl")):
            raise ClusterctlError(f"{file.name} is compiled for another platform than a phone's")
    return files


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


MPI4PY: Final = Recipe("mpi4py", ("mpi4py", "phone-build", "host-build"), (), "build-wheel", _prepare_mpi4py)
PYOPENCL: Final = Recipe(
    "pyopencl",
    ("pyopencl", "pyopencl-build", "pyopencl-run"),
    ("siphash24.py",),
    "build-pyopencl",
    _prepare_pyopencl,
)
