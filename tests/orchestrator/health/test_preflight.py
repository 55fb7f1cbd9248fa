"""The preflight of a run evaluates the checks that need only session facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.fleet.result import Outcome, Outcomes, Status
from orchestrator.health.phone_health import PhoneHealth, PhoneState, evaluate_health
from orchestrator.health.preflight import Preflight, UnfitPhonesError, mark_unfit, run_preflight
from orchestrator.health.session_facts import SessionFacts
from orchestrator.health.vitals import Vitals, parse_vitals
from orchestrator.inventory.model import Cluster
from orchestrator.records.record import RunRecord
from tests.orchestrator.health.samples import SESSION, SUBNET
from tests.orchestrator.launch.samples import phones, telemetry


def before_a_run(*sessions: SessionFacts, claims: dict[str, RunRecord] | None = None) -> Preflight:
    return run_preflight(_health([replace(_vitals(), session=each) for each in sessions]), _cluster(), claims)


def _vitals(**changes: Any) -> Vitals:
    return replace(parse_vitals(telemetry(), "", (1000.0, 1000.0)), session=SESSION, **changes)


def _health(vitals: Sequence[Vitals]) -> tuple[PhoneHealth, ...]:
    chosen = phones(len(vitals))
    outcomes = [Outcome(phone, Status.OK, 0.1, each) for phone, each in zip(chosen, vitals, strict=True)]
    return evaluate_health(Outcomes[Vitals](tuple(outcomes)))


def _cluster() -> Cluster:
    from pathlib import Path

    return Cluster("rack", SUBNET, None, "eth0", "1gbit", (), Path("inventory.yaml"))


def test_a_phone_that_launch_would_refuse_is_not_ready() -> None:
    broken = replace(_vitals(), session=replace(SESSION, tmpdir="", tmp_writable=False))
    health = _health([_vitals(), broken, _vitals(disk_free_mb=10), _vitals(temperature_c=95.0)])
    assert [each.state for each in health[:3]] == [PhoneState.READY] * 3
    ready, tmpdir, disk, hot = mark_unfit(health, _cluster())
    assert [ready.state, tmpdir.state, disk.state, hot.state] == [
        PhoneState.READY,
        PhoneState.UNFIT,
        PhoneState.UNFIT,
        PhoneState.HOT,
    ]
    assert "TMPDIR is unset" in tmpdir.notes[0]
    assert tmpdir.remedy == "clusterctl doctor --fix --limit p1-02"
    assert "only 10 MB of disk" in disk.notes[0]
    assert run_preflight(health, _cluster()).fit == (ready.phone,)


def test_a_phone_without_tmpdir_is_unfit() -> None:
    found = before_a_run(SESSION, replace(SESSION, tmpdir="", tmp_writable=False))
    assert [each.phone.name for each in found.unfit] == ["p1-02"]
    message = UnfitPhonesError(found, "launch").message
    assert "TMPDIR is unset" in message
    assert "clusterctl doctor --fix --limit p1-02" in message


def test_a_broken_session_is_reported_before_the_agent_error() -> None:
    found = before_a_run(replace(SESSION, path="/system/bin", shell_error="bash: not found"))
    assert "bash: not found (PATH is /system/bin)" in found.explain()[0]


def test_slow_phones_take_part_with_a_warning() -> None:
    found = before_a_run(SESSION, replace(SESSION, cpus_allowed=(0, 1, 2)))
    assert len(found.fit) == 2
    assert "p1-02 (sw1:2): may use only cores 0-2" in found.warnings()[0]


def test_a_phone_reached_over_wifi_is_unfit() -> None:
    found = before_a_run(replace(SESSION, addresses=(("wlan0", "10.77.1.1/16"),), interfaces=("lo", "wlan0")))
    assert "reached over wlan0; eth0 is missing" in found.explain()[0]


def test_a_phone_that_cannot_open_connections_is_unfit() -> None:
    found = before_a_run(SESSION, replace(SESSION, outbound="none"))
    assert "p1-02 (sw1:2): SSH reaches the phone over eth0, but connections it opens itself" in found.explain()[0]
    assert "clusterctl doctor --limit p1-02" in found.explain()[0]


def test_a_healthy_session_is_fit() -> None:
    found = before_a_run(SESSION, SESSION)
    assert (found.unfit, found.slow, len(found.fit)) == ((), (), 2)


def test_a_phone_of_an_unfinished_run_is_unfit() -> None:
    """It may be idle while the run waits for other phones, and hold the only copy of its state."""
    waiting = RunRecord("20260131-120000-lenet-00aa", "lenet", "p1-02", ("p1-02",), 20, 0.0, state="interrupted")
    found = before_a_run(SESSION, SESSION, claims={"p1-02": waiting})
    assert [phone.name for phone in found.fit] == ["p1-01"]
    (line,) = found.explain()
    assert f"belongs to {waiting.run_id}, which is interrupted" in line
    assert f"-> clusterctl stop {waiting.run_id}" in line
