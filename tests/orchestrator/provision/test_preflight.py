from __future__ import annotations

import pytest

from orchestrator.errors import PhoneError
from orchestrator.provision.facts import Battery, Facts
from orchestrator.provision.preflight import Asked, require_packages, require_space, warnings
from tests.orchestrator.provision.phones import cluster, facts, installed, phone, want

READY = facts(addresses={"10.77.1.1": "eth0"}, disk_free_kb=1 << 20)


def told(answer: Facts, *, sent: float = 999.9, received: float = 1000.1) -> tuple[str, ...]:
    return warnings(phone(1), Asked(answer, sent, received), want())


def test_a_phone_in_order() -> None:
    assert told(READY) == ()


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert told(READY, sent=990.0, received=1012.0) == ()


@pytest.mark.parametrize(("sent", "word"), [(900.0, "100 s ahead"), (1100.0, "100 s behind")])
def test_a_wrong_clock(sent: float, word: str) -> None:
    (warning,) = told(READY, sent=sent, received=sent + 0.5)
    assert word in warning


@pytest.mark.parametrize(("battery", "warned"), [((15.0, False), True), ((15.0, True), False), ((80.0, False), False)])
def test_an_empty_battery(battery: tuple[float, bool], warned: bool) -> None:  # noqa: FBT001  a test's table
    answer = facts(addresses=READY.addresses, disk_free_kb=READY.disk_free_kb, battery=Battery(*battery))
    assert bool(told(answer)) is warned


@pytest.mark.parametrize(
    ("addresses", "word"),
    [
        ({"10.77.1.1": "wlan0", "10.77.9.9": "eth0"}, "over wlan0, not over eth0"),
        ({"10.0.0.5": "usb0"}, "has no eth0"),
        ({}, ""),
    ],
)
def test_another_interface(addresses: dict[str, str], word: str) -> None:
    assert word in "".join(told(facts(addresses=addresses)))


def test_a_full_phone_with_work_to_do_is_refused_with_what_it_needs() -> None:
    with pytest.raises(PhoneError, match="1 MB of storage are free, 50 MB are needed"):
        require_space(facts(packages=installed(python="1"), disk_free_kb=1024), want())
    require_space(facts(disk_free_kb=1 << 20), want())
    require_space(facts(disk_free_kb=None), want())


def test_a_phone_of_an_architecture_without_packages_or_agent_is_refused() -> None:
    require_packages(facts(), want())
    with pytest.raises(PhoneError, match="no packages for its architecture, i686"):
        require_packages(facts(arch="i686"), want())
    with pytest.raises(PhoneError, match="no agent for its architecture, aarch64"):
        require_packages(facts(), want(bundles={}))


def test_the_loopback_lab_has_no_wire() -> None:
    loopback = want(cluster=cluster("127.77.0.0/16"))
    assert warnings(phone(1), Asked(facts(addresses={"127.0.0.1": "lo"}), 999.9, 1000.1), loopback) == ()
