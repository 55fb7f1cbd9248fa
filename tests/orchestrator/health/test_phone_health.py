from __future__ import annotations

from typing import Any

import pytest

from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.health.phone_health import PhoneState, evaluate_health
from orchestrator.health.preflight import Preflight, UnfitPhonesError, run_preflight
from orchestrator.health.vitals import Vitals, parse_vitals
from orchestrator.inventory.model import Phone
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.launch.samples import phones, telemetry

BARE = "bare\nepoch 1000\nagent none\nmemory_free_mb 3000\ndisk_free_mb 9000\n"


def answers(phone: Phone, stdout: str | None = None, **changes: Any) -> Outcome[Vitals]:
    vitals = parse_vitals(stdout or telemetry(**changes), "", (1000.0, 1000.0))
    return Outcome(phone, Status.OK, 0.1, vitals)


def off(phone: Phone) -> Outcome[Vitals]:
    return Outcome(phone, Status.UNREACHABLE, 5.0, phase=Phase.TCP, error="no route to host")


def preflight(*outcomes: Outcome[Vitals]) -> Preflight:
    return run_preflight(evaluate_health(Outcomes(outcomes)))


def test_free_memory_is_in_megabytes() -> None:
    (phone,) = phones(1)
    assert preflight(answers(phone, memory_free_mb=2799)).memory == {phone.name: 2_799_000_000}


@pytest.mark.parametrize(
    ("changes", "state", "note"),
    [
        ({}, PhoneState.READY, None),
        ({"run": {"id": "r", "state": "running", "step": 1}}, PhoneState.RUNNING, None),
        ({"run": {"id": "r", "state": "done", "step": 1}}, PhoneState.READY, None),
        ({"temperature_c": 85.0}, PhoneState.HOT, "85 °C"),
        ({"temperature_c": 46.0, "temperature_source": "battery"}, PhoneState.HOT, "46 °C"),
        ({"battery": {"temperature": 47.0}}, PhoneState.HOT, "battery at 47 °C"),
        ({"battery": {"percentage": 9, "status": "DISCHARGING"}}, PhoneState.READY, "battery 9 % and discharging"),
        ({"battery": {"percentage": 9, "status": "CHARGING"}}, PhoneState.READY, None),
        ({"frequency_mhz": 900, "frequency_max_mhz": 2800}, PhoneState.READY, None),
        (
            {"frequency_mhz": 900, "frequency_max_mhz": 2800, "run": {"id": "r", "state": "running", "step": 1}},
            PhoneState.RUNNING,
            "throttled: clock at 32% of maximum",
        ),
        ({"disk_free_mb": 10}, PhoneState.READY, "only 10 MB of disk"),
        ({"memory_free_mb": 10}, PhoneState.READY, "only 10 MB of memory"),
        ({"epoch": 1100.0}, PhoneState.READY, "clock 100 s ahead"),
        ({"epoch": 900.0}, PhoneState.READY, "clock 100 s behind"),
    ],
)
def test_state_and_notes_follow_from_vitals(changes: dict[str, Any], state: PhoneState, note: str | None) -> None:
    (health,) = evaluate_health(Outcomes((answers(phones(1)[0], **changes),)))
    assert health.state is state
    assert (note is None) == (not health.notes)
    assert note is None or note in health.notes[0]


def test_an_unknown_key_is_a_new_phone_and_a_changed_key_a_failure() -> None:
    new, changed = phones(2)
    codes = {new: ErrorCode.HOST_KEY_UNKNOWN, changed: ErrorCode.HOST_KEY_CHANGED}
    outcomes = tuple(
        Outcome[Vitals](phone, Status.FAILED, 1, phase=Phase.HOSTKEY, error="any words", code=code)
        for phone, code in codes.items()
    )
    assert [each.state for each in evaluate_health(Outcomes(outcomes))] == [PhoneState.UNPROVISIONED, PhoneState.FAILED]


def test_a_release_of_the_minority_is_reported() -> None:
    first, second, third = phones(3)
    odd = answers(second, agent={"release": "old", "version": "0"})
    health = evaluate_health(Outcomes((answers(first), odd, answers(third))))
    assert [bool(each.notes) for each in health] == [False, True, False]
    assert "old, most phones have 0.1.0-abc" in health[1].notes[0]


def test_unfit_phones_are_listed_with_reason_and_remedy() -> None:
    first, second, third, fourth = phones(4)
    busy = answers(fourth, run={"id": "run-1", "state": "running", "step": 3})
    found = preflight(answers(first), off(second), answers(third, BARE), busy)
    assert found.fit == (first,)
    error = UnfitPhonesError(found, "launch")
    assert error.exit_code == 1
    assert error.remedy == "clusterctl launch --limit sw1:1"
    assert "p1-02 (sw1:2): no route to host" in error.message
    assert "p1-03 (sw1:3): not provisioned -> clusterctl provision --limit p1-03" in error.message
    assert "p1-04 (sw1:4): takes part in run-1, which is running" in error.message
    assert "select the others" in error.message


def test_if_all_phones_are_busy_the_remedy_is_attach() -> None:
    busy = [answers(phone, run={"id": "run-1", "state": "running", "step": 3}) for phone in phones(4)]
    assert UnfitPhonesError(preflight(*busy), "launch").remedy == "clusterctl attach run-1"


def test_phones_with_the_same_reason_share_a_line() -> None:
    found = preflight(*(answers(phone, BARE) for phone in phones(46)))
    assert found.explain() == ["sw1:1-46 (46 phones): not provisioned -> clusterctl provision --limit sw1:1-46"]
    assert UnfitPhonesError(found, "launch").remedy == "clusterctl provision --limit sw1:1-46"
    assert "select the others" not in UnfitPhonesError(found, "launch").message
