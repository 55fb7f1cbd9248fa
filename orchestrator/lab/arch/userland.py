"""The arm64 userland: Debian packages unpacked once into the cache directory, mounted read-only on every phone.

Packages are only unpacked, not installed: their maintainer scripts do not run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.errors import ClusterctlError
from orchestrator.paths import cache_dir
from phone_agent.contract import directory_cache

_KEEP_NEWEST = 2
_UNUSED_S = 30 * 24 * 3600.0  # a running lab still uses the userland it started with
_MERGED_USR = ("bin", "lib", "sbin")  # some packages still use /bin for /usr/bin
_CONFIGURATION = """\
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::State "{root}";
Dir::State::status "{root}/status";
Dir::Cache "{root}";
Dir::Log "{root}";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
{acquire}
Acquire::Languages "none";
Acquire::Retries "3";
"""
DEBIAN_ARCHITECTURE: Final = "arm64"
TRIPLET: Final = "aarch64-linux-gnu"

# As `scripts/setup.sh` and a minimal Debian install them on the host, which native phones use.
PACKAGES: Final = (
    *(
        "bash",
        "coreutils",
        "curl",
        "dash",
        "debianutils",
        "diffutils",
        "findutils",
        "grep",
        "gzip",
        "bzip2",
        "hostname",
    ),
    *("less", "mawk", "procps", "psmisc", "sed", "tar", "util-linux", "bsdutils", "bsdextrautils", "xz-utils"),
    *("zstd", "apt", "dpkg", "iperf3", "iproute2", "iputils-ping", "openssh-client", "openssh-server"),
    *("openssh-sftp-server", "libopenmpi-dev", "openmpi-bin", "libopenblas0-pthread", "python3", "python3-numpy"),
    *("python3-dev", "python3-pip", "python3-setuptools", "gcc", "libc6-dev", "make"),
)

# Symlinks that maintainer scripts would create; these are not run.
_LIBRARIES: Final = f"usr/lib/{TRIPLET}"
LINKS: Final = {
    "usr/bin/awk": "mawk",
    f"{_LIBRARIES}/libblas.so.3": "openblas-pthread/libblas.so.3",
    f"{_LIBRARIES}/liblapack.so.3": "openblas-pthread/liblapack.so.3",
    f"{_LIBRARIES}/libopenblas.so.0": "openblas-pthread/libopenblas.so.0",
}


def ensure_userland(on_event: Callable[[str], None]) -> Path:
    """The root directory of the userland. Created if it is missing, which takes a minute and needs the network."""
    directory = cache_dir() / f"userland-{DEBIAN_ARCHITECTURE}-{cache_key()}"
    if not directory_cache.use(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _build_lock(directory):
            if not directory.exists():  # another process may have created it meanwhile
                _build(directory, on_event)
        directory_cache.prune(directory, _KEEP_NEWEST, _UNUSED_S)
    return directory


@contextmanager
def _build_lock(directory: Path) -> Iterator[None]:
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(directory: Path, on_event: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".userland-") as scratch:
        on_event(f"downloading Debian packages for {DEBIAN_ARCHITECTURE} (first use only)")
        packages = download(PACKAGES, DEBIAN_ARCHITECTURE, Path(scratch, "apt"))
        on_event(f"unpacking {len(packages)} packages")
        root = Path(scratch, "root")
        _unpack(packages, root)
        _link(root)
        _compile_python(root)
        (root / "packages.txt").write_text("".join(f"{package.name}\n" for package in packages))
        root.chmod(0o755)
        root.rename(directory)


def _unpack(packages: Sequence[Path], root: Path) -> None:
    for name in _MERGED_USR:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        _unpack_one(package, root)


def _unpack_one(package: Path, root: Path) -> None:
    """Unpack with tar, because dpkg-deb would replace the /bin symlink by a directory."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reader:
        command = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)]
        tar = subprocess.run(command, stdin=reader.stdout, capture_output=True, text=True, check=False)
    if tar.returncode or reader.returncode:
        raise ClusterctlError(f"cannot unpack {package.name}: {tar.stderr.strip()[-300:]}", remedy="free disk space")


def _link(root: Path) -> None:
    for path, target in LINKS.items():
        link = root / path
        if not (link.parent / target).exists():
            raise ClusterctlError(f"the {DEBIAN_ARCHITECTURE} packages have no {target} next to {path}")
        link.symlink_to(target)


def _compile_python(root: Path) -> None:
    """Phones cannot write bytecode there, and compiling numpy at every import takes seconds under emulation."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if (root / "usr/lib" / version).is_dir():  # bytecode depends on the Python version, not on the CPU
        command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "-s", str(root), "-p", "/"]
        directories = [str(root / "usr/lib" / version), str(root / "usr/lib/python3")]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
        subprocess.run(
            [*command, *directories], capture_output=True, check=False, env=environment
        )  # some test data files do not compile


def download(packages: Sequence[str], architecture: str, root: Path) -> list[Path]:
    """Download packages and their dependencies with the host's apt. Return the .deb files.

    apt uses private directories below `root`, so the host's dpkg database is not touched. Sources, proxy and trusted
    keys are those of the host, and apt verifies every file.
    """
    for directory in ("lists/partial", "archives/partial"):
        (root / directory).mkdir(parents=True)
    (root / "status").touch()
    configuration = root / "apt.conf"
    acquire = "\n".join(_host_acquire_options())
    configuration.write_text(_CONFIGURATION.format(root=root, architecture=architecture, acquire=acquire))
    _apt(configuration, "update", "-qq")
    _apt(configuration, "install", "-qq", "--yes", "--download-only", *packages)
    return sorted((root / "archives").glob("*.deb"))


def _host_acquire_options() -> list[str]:
    """Proxies and similar options. The rest of the host's configuration may name programs to run after an update."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    return [line for line in dump.splitlines() if line.startswith("Acquire::")]


def _apt(configuration: Path, *arguments: str) -> None:
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterctlError(
            f"apt-get cannot download packages for another architecture: {_first_error(done.stderr)}",
            remedy="check the network connection, and that this computer's apt sources offer arm64 packages",
        )


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E:")] or text.splitlines()
    return lines[0][:300] if lines else "no output"


def cache_key() -> str:
    """Cache key of a userland: it changes with this list, and with the host's versions of the packages.

    Native phones use the host's versions, and emulated phones should differ from them in the architecture only.
    """
    return hashlib.sha256(repr((PACKAGES, LINKS, _installed_versions())).encode()).hexdigest()[:16]


def _installed_versions() -> str:
    command = ["dpkg-query", "-W", "-f", "${binary:Package} ${Version} ${db:Status-Status}\n", *PACKAGES]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
