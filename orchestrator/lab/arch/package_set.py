"""What a phone's programs are made from when they cannot be borrowed from this computer: Debian packages for arm64.

The same packages that `scripts/setup.sh` and a plain Debian give this computer, since the same programs are borrowed.
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

# Links that maintainer scripts would make; none of those is run.
_LIBRARIES: Final = f"usr/lib/{TRIPLET}"
LINKS: Final = {
    "usr/bin/awk": "mawk",
    f"{_LIBRARIES}/libblas.so.3": "openblas-pthread/libblas.so.3",
    f"{_LIBRARIES}/liblapack.so.3": "openblas-pthread/liblapack.so.3",
    f"{_LIBRARIES}/libopenblas.so.0": "openblas-pthread/libopenblas.so.0",
}


def key() -> str:
    """Names a userland: another one is made when the recipe changes, or when these packages change on this computer.

    Native phones borrow the latter, and phones of both kinds should differ by their processor only.
    """
    return hashlib.sha256(repr((PACKAGES, LINKS, _versions_here())).encode()).hexdigest()[:16]


def _versions_here() -> str:
    command = ["dpkg-query", "-W", "-f", "${binary:Package} ${Version} ${db:Status-Status}\n", *PACKAGES]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
