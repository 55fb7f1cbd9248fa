"""The rack of the paper: 138 phones on three switches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.lab.client import read_spec
from tests.labs import namespaces_missing, running_lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def _neighbor_table_overflows() -> int:
    header, *cpus = (line.split() for line in Path("/proc/net/stat/arp_cache").read_text().splitlines())
    return sum(int(cpu[header.index("table_fulls")], 16) for cpu in cpus)


def test_every_phone_of_138_can_talk_to_every_other() -> None:
    """All namespaces share the kernel's neighbor table, which is too small for this many pairs."""
    if reason := namespaces_missing():
        pytest.skip(reason)
    with running_lab(138, 3) as lab:
        phones = read_spec(lab.directory).phones
        send = "for address; do echo hello >/dev/udp/$address/9 || exit 1; done"
        addresses = [phone.address for phone in phones]
        before = _neighbor_table_overflows()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda phone: lab.on(phone.name, "bash", "-c", send, "-", *addresses), phones))
        assert _neighbor_table_overflows() == before
