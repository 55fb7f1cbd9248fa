"""The arm64 userland: unpacked once, kept in the directory_cache, and seen read-only by every phone.

Nothing of it is installed, here or there: packages are unpacked, and their maintainer scripts are not run.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import ClusterctlError
from orchestrator.lab.arch import package_set
from orchestrator.lab.arch.download import download
from orchestrator.paths import cache_dir
from phone_agent.contract import directory_cache

_NEWEST = 2
_UNUSED_S = 30 * 24 * 3600.0  # a lab that is up reads the one it started with
_MERGED = ("bin", "lib", "sbin")  # packages still say /bin for /usr/bin


def ensure(on_event: Callable[[str], None]) -> Path:
    """The userland's root directory. Made if it is missing, which needs the network and a minute; else at once."""
    place = cache_dir() / f"userland-{package_set.DEBIAN_ARCHITECTURE}-{package_set.key()}"
    if not directory_cache.use(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            if not place.exists():  # nobody else made it while this process waited
                _make(place, on_event)
        directory_cache.prune(place, _NEWEST, _UNUSED_S)
    return place


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(place: Path, on_event: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".userland-") as scratch:
        on_event(f"fetching Debian packages for {package_set.DEBIAN_ARCHITECTURE}, once")
        packages = download(package_set.PACKAGES, package_set.DEBIAN_ARCHITECTURE, Path(scratch, "apt"))
        on_event(f"unpacking {len(packages)} of them")
        root = Path(scratch, "root")
        _unpack(packages, root)
        _link(root)
        _compile_python(root)
        (root / "packages.txt").write_text("".join(f"{package.name}\n" for package in packages))
        root.chmod(0o755)
        root.rename(place)


def _unpack(packages: Sequence[Path], root: Path) -> None:
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        _unpack_one(package, root)


def _unpack_one(package: Path, root: Path) -> None:
    """Not by dpkg-deb alone: it would put a directory where /bin is a link."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reader:
        command = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)]
        tar = subprocess.run(command, stdin=reader.stdout, capture_output=True, text=True, check=False)
    if tar.returncode or reader.returncode:
        raise ClusterctlError(f"cannot unpack {package.name}: {tar.stderr.strip()[-300:]}", remedy="is the disk full?")


def _link(root: Path) -> None:
    for path, target in package_set.LINKS.items():
        link = root / path
        if not (link.parent / target).exists():
            raise ClusterctlError(f"the packages for {package_set.DEBIAN_ARCHITECTURE} have no {target} beside {path}")
        link.symlink_to(target)


def _compile_python(root: Path) -> None:
    """Phones cannot write there, and an emulated Python would compile numpy at every import: seconds each time."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if (root / "usr/lib" / version).is_dir():  # bytecode is the same on all processors, not in all versions
        command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "-s", str(root), "-p", "/"]
        places = [str(root / "usr/lib" / version), str(root / "usr/lib/python3")]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
        subprocess.run(
            [*command, *places], capture_output=True, check=False, env=environment
        )  # test data do not compile
