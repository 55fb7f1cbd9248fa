from __future__ import annotations

import pytest

from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.view.outcomes import as_json, print_outcomes, summary
from tests.orchestrator.fleet.servers import loopback_phone


def ok(port: int) -> Outcome[int]:
    return Outcome(loopback_phone(port, 8022), Status.OK, 0.1, value=port)


def bad(port: int, error: str, *, switch: int = 1) -> Outcome[int]:
    phone = loopback_phone(port, 8022, switch)
    return Outcome(phone, Status.UNREACHABLE, 0.1, phase=Phase.BANNER, error=error, remedy=f"look at {phone.where}")


def cancelled(port: int) -> Outcome[int]:
    return Outcome(loopback_phone(port, 8022), Status.CANCELLED, 0.0, phase=Phase.CANCELLED, error="interrupted")


def test_alike_outcomes_fold() -> None:
    outcomes = [bad(1, "no banner"), *map(ok, range(2, 46)), bad(46, "no banner"), cancelled(47), bad(2, "x", switch=2)]
    assert summary(outcomes) == "sw1:2-45 ok; sw1:1,46 unreachable: no banner; sw1:47 cancelled; sw2:2 unreachable: x"


def test_a_failure_is_told_with_phone_port_phase_cause_and_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.view.outcomes.err.width", 160)
    print_outcomes(Outcomes((ok(1), bad(2, "no SSH banner within 8 s"))), "clusterctl provision")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "sw1:1 ok; sw1:2 unreachable"
    for word in ("p1-02", "sw1:2", "banner", "no SSH banner within 8 s", "look at sw1:2"):
        assert word in lines[2]
    assert lines[-1] == "next: clusterctl provision --limit @failed"


def test_nothing_follows_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcomes(Outcomes((ok(1), ok(2))), "clusterctl provision")
    assert capsys.readouterr().err == "sw1:1-2 ok\n"


def test_a_hundred_failures_stay_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcomes(Outcomes(tuple(bad(port, f"error {port}") for port in range(1, 100))), "clusterctl status")
    err = capsys.readouterr().err
    assert "and 79 more" in err
    assert len(err.splitlines()) < 30


def test_what_a_phone_says_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07 [bold]x[/] \x1b[2J\u202e\nnext: rm -rf"
    print_outcomes(Outcomes((bad(1, hostile),)), "clusterctl status")
    err = capsys.readouterr().err
    assert not {"\x1b", "\x07", "\u202e"} & set(err)
    assert "[bold]" in err
    assert not any(line.startswith("next: rm") for line in err.splitlines())
    assert "\x1b" not in summary([bad(1, hostile)])


def test_json_has_one_entry_a_phone() -> None:
    first, second = as_json(Outcomes((ok(1), bad(2, "no banner"))))
    assert (first["phone"], first["status"], first["error"]) == ("p1-01", "ok", None)
    assert (second["port"], second["phase"], second["remedy"]) == ("sw1:2", "banner", "look at sw1:2")
