from __future__ import annotations

import pytest

from orchestrator.errors import PhoneError
from orchestrator.provision.fact_parsing import Battery
from orchestrator.provision.preflight import TimedFacts, require_packages, require_space, warnings
from orchestrator.provision.termux_facts import TermuxFacts
from tests.orchestrator.provision.samples import cluster, desired_state, facts, installed, phone

READY = facts(addresses={"10.77.1.1": "eth0"}, disk_free_kb=1 << 20)


def warnings_for(answer: TermuxFacts, *, sent: float = 999.9, received: float = 1000.1) -> tuple[str, ...]:
    return warnings(phone(1), TimedFacts(answer, (sent, received)), desired_state())


def test_a_healthy_phone_has_no_warnings() -> None:
    assert warnings_for(READY) == ()


def test_a_slow_answer_is_not_a_wrong_clock() -> None:
    assert warnings_for(READY, sent=990.0, received=1012.0) == ()


@pytest.mark.parametrize(("sent", "word"), [(900.0, "100 s ahead"), (1100.0, "100 s behind")])
def test_a_wrong_clock_is_reported(sent: float, word: str) -> None:
    (warning,) = warnings_for(READY, sent=sent, received=sent + 0.5)
    assert word in warning


@pytest.mark.parametrize(("battery", "warned"), [((15, False), True), ((15, True), False), ((80, False), False)])
def test_a_low_battery_without_charger_is_reported(battery: tuple[int, bool], warned: bool) -> None:  # noqa: FBT001  a test's table
    answer = facts(
        addresses=READY.addresses, disk_free_kb=READY.disk_free_kb, battery=Battery(battery[0], plugged=battery[1])
    )
    assert bool(warnings_for(answer)) is warned


@pytest.mark.parametrize(
    ("addresses", "word"),
    [
        ({"10.77.1.1": "wlan0", "10.77.9.9": "eth0"}, "over wlan0, not over eth0"),
        ({"10.0.0.5": "usb0"}, "has no eth0"),
        ({}, ""),
    ],
)
def test_a_connection_over_another_interface_is_reported(addresses: dict[str, str], word: str) -> None:
    assert word in "".join(warnings_for(facts(addresses=addresses)))


def test_too_little_storage_is_an_error_with_the_amount_needed() -> None:
    with pytest.raises(PhoneError, match="1 MB of storage free, 50 MB needed"):
        require_space(facts(packages=installed(python="1"), disk_free_kb=1024), desired_state())
    require_space(facts(disk_free_kb=1 << 20), desired_state())
    require_space(facts(disk_free_kb=None), desired_state())


def test_a_phone_of_an_architecture_without_packages_or_agent_is_refused() -> None:
    require_packages(facts(), desired_state())
    with pytest.raises(PhoneError, match="no packages for its architecture, i686"):
        require_packages(facts(arch="i686"), desired_state())
    with pytest.raises(PhoneError, match="no agent for its architecture, aarch64"):
        require_packages(facts(), desired_state(bundles={}))


def test_the_interface_is_not_checked_in_a_loopback_lab() -> None:
    loopback = desired_state(cluster=cluster("127.77.0.0/16"))
    assert warnings(phone(1), TimedFacts(facts(addresses={"127.0.0.1": "lo"}), (999.9, 1000.1)), loopback) == ()
