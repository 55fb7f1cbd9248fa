"""While phones compute, what is open on them is sshd; and Open MPI, on the wired address."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from phone_agent import bind_shim
from phone_agent.core.build import AARCH64_ANDROID, host_target
from tests.labs import TestLab, eventually
from tests.phone_agent.core.elf import LOAD, NEEDED, Elf
from tests.security.fuzz import tried

LISTEN = """
import socket, sys
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
try:
    server.bind((sys.argv[1], int(sys.argv[2])))
    print(server.getsockname()[0])
except OSError as error:
    print(error.errno)
"""


def bound(address: str, wire: str, port: int = 0) -> str:
    env = {**os.environ, "LD_PRELOAD": str(bind_shim.cached(host_target())), "CLUSTERCTL_WIRED": wire}
    done = subprocess.run(
        [sys.executable, "-c", LISTEN, address, str(port)], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("asked", "given"),
    [("0.0.0.0", "127.77.3.4"), ("127.0.0.1", "127.0.0.1"), ("127.9.9.9", "127.9.9.9"), ("::", "::1"), ("::1", "::1")],  # noqa: S104
)
def test_a_listener_on_every_address_is_on_the_wired_one(asked: str, given: str) -> None:
    assert bound(asked, "127.77.3.4") == given


@pytest.mark.parametrize("wire", ["", "wired", "127.77.3", "127.77.3.4.5", "127.77.3.999", "127.77.3.-4", "1" * 5000])
def test_without_a_wired_address_nothing_changes(wire: str) -> None:
    tried("wired addresses")
    assert bound("0.0.0.0", wire) == "0.0.0.0"  # noqa: S104


def test_errors_are_those_of_the_kernel() -> None:
    """Open MPI goes through the ports until one is free, and looks at errno for that."""
    import errno

    with socket.create_server(("127.77.3.4", 0)) as taken:
        assert bound("0.0.0.0", "127.77.3.4", taken.getsockname()[1]) == str(errno.EADDRINUSE)  # noqa: S104
    assert bound("0.0.0.0", "192.0.2.1") == str(errno.EADDRNOTAVAIL)  # noqa: S104


def test_the_phones_library_needs_nothing_and_fits_its_pages() -> None:
    library = Elf(bind_shim.cached(AARCH64_ANDROID))
    assert NEEDED not in library.dynamic_tags()
    assert all(segment.alignment >= 16384 for segment in library.segments if segment.kind == LOAD)
    open_ones = {symbol.name for symbol in library.symbols() if not symbol.is_defined}
    assert open_ones == {"__errno", "__errno_location", "getenv"}  # weak, and libc's: found where it is loaded
    assert [symbol.name for symbol in library.symbols() if symbol.is_defined] == ["bind"]


def listening(lab: TestLab, phone: str) -> set[tuple[str, str]]:
    """(program, address) of every TCP listener on a phone."""
    told = lab.on(phone, "/apex/host/bin/ss", "-Hltnp").stdout.splitlines()
    found = (re.search(r'^LISTEN +\d+ +\d+ +(\S+):\d+ .*\(\("([^"]+)"', line) for line in told)
    return {(match[2], match[1]) for match in found if match}


@pytest.mark.lab
def test_on_phones_mpi_listens_on_the_wire(provisioned_lab4: TestLab) -> None:
    lab = provisioned_lab4
    arguments = ("bench", "allreduce", "--limit", "p1-01,p1-02", "--mb", "60", "--repeats", "10", "--json")
    with lab.started(*arguments):
        eventually(lambda: any(name == "python3" for name, _ in listening(lab, "p1-02")))
        heads, others = listening(lab, "p1-01"), listening(lab, "p1-02")
    assert {"mpirun", "sshd"} <= {name for name, _ in heads}
    assert {"orted", "python3", "sshd"} <= {name for name, _ in others}
    local = {"127.0.0.1", "[::1]"}
    assert {address for name, address in heads if name != "sshd"} - local == {"10.77.1.1"}
    assert {address for name, address in others if name != "sshd"} - local == {"10.77.1.2"}
    eventually(lambda: {name for name, _ in listening(lab, "p1-02")} == {"sshd"})


def test_the_agent_itself_listens_nowhere() -> None:
    """Its own sockets are files in a run's directory: nothing of it is on any network."""
    sources = (Path(bind_shim.__file__).parents[1]).rglob("*.py")
    found = [path.name for path in sources if re.search(r"create_server|\.listen\(", path.read_text())]
    assert [name for name in found if name not in {"server.py", "network.py"}] == []
