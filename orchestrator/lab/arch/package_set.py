"""The Debian arm64 packages that provide the programs of emulated phones.

They are the packages that `scripts/setup.sh` and a minimal Debian install on the host, which native phones use.
"""

from __future__ import annotations

import hashlib
import subprocess
from typing import Final

DEBIAN_ARCHITECTURE: Final = "arm64"
TRIPLET: Final = "aarch64-linux-gnu"

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
    *("less", "mawk", "procps", "psmisc", "sed", "tar", "util-linux", "bsdutils", "bsdextrautils", "xz-utils", "zstd"),
    *("apt", "dpkg", "iperf3", "iproute2", "iputils-ping", "openssh-client", "openssh-server", "openssh-sftp-server"),
    *("libopenmpi-dev", "openmpi-bin", "libopenblas0-pthread", "python3", "python3-numpy"),
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


def cache_key() -> str:
    """Cache key of a userland: it changes with this list, and with the host's versions of the packages.

    Native phones use the host's versions, and emulated phones should differ from them in the architecture only.
    """
    return hashlib.sha256(repr((PACKAGES, LINKS, _installed_versions())).encode()).hexdigest()[:16]


def _installed_versions() -> str:
    command = ["dpkg-query", "-W", "-f", "${binary:Package} ${Version} ${db:Status-Status}\n", *PACKAGES]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
