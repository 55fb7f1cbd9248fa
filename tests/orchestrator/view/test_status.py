"""`status` at the sizes of screen that it must fit."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.fleet.result import Outcome, Outcomes, Phase, Status
from orchestrator.health.phone_health import PhoneHealth, evaluate_health
from orchestrator.health.vitals import Vitals, parse_vitals
from orchestrator.inventory.model import Phone
from orchestrator.view.status import render_status
from tests.orchestrator.launch.samples import phones, telemetry
from tests.orchestrator.view.screens import drawn, screen


def rack(count: int, switches: int, off: Sequence[int] = (), hot: Sequence[int] = ()) -> tuple[PhoneHealth, ...]:
    return evaluate_health(
        Outcomes(tuple(outcome(phone, index, off, hot) for index, phone in enumerate(phones(count, switches))))
    )


def outcome(phone: Phone, index: int, off: Sequence[int], hot: Sequence[int]) -> Outcome[Vitals]:
    if index in off:
        return Outcome(phone, Status.UNREACHABLE, 5.0, phase=Phase.TCP, error="no answer within 5 s")
    text = telemetry(temperature_c=88.0 if index in hot else 41.0, run={"id": "run-1", "state": "running", "step": 9})
    return Outcome(phone, Status.OK, 0.1, parse_vitals(text, "", (1000.0, 1000.0)))


def status(health: Sequence[PhoneHealth], width: int = 120, height: int = 45) -> list[str]:
    console = screen(width, height)
    console.print(render_status("s10plus-138", health, (width, height)))
    return drawn(console)


def test_138_phones_fit_one_screen_and_problem_phones_are_named() -> None:
    lines = status(rack(138, 3, off=(2, 60), hot=(100,)))
    assert len(lines) <= 44  # one is left for the prompt
    assert max(map(len, lines)) <= 120
    text = "\n".join(lines)
    assert "138 phones   ● 135 running  ▲ 1 hot  · 2 off" in lines[0]
    assert "run-1  step 9 on 136 phones" in text
    assert "sw1:3,sw2:15 (2 phones)" in text
    assert "p3-09 (sw3:9)" in text
    assert "88 °C (limit 80 °C)" in text
    assert text.count("●41°") == 135


def test_phones_with_the_same_problem_share_one_line() -> None:
    lines = status(rack(138, 3, off=range(46)))
    assert len(lines) <= 44
    assert any("sw1:1-46 (46 phones)" in line for line in lines)


def test_a_list_that_does_not_fit_is_shortened_with_a_note() -> None:
    odd = evaluate_health(
        Outcomes(
            tuple(
                Outcome[Vitals](phone, Status.FAILED, 1.0, phase=Phase.AUTH, error=f"trouble {index}")
                for index, phone in enumerate(phones(138, 3))
            )
        )
    )
    lines = status(odd, height=45)
    assert len(lines) <= 44
    assert any("more; full list: clusterctl status --json" in line for line in lines)


def test_few_phones_are_shown_with_all_readings() -> None:
    text = "\n".join(status(rack(4, 2, off=(3,))))
    assert "2400/2841" in text
    assert "81%+" in text
    assert "58.6 GB" in text
    assert "p2-02 (sw2:2)" in text


def test_markup_from_a_phone_is_not_interpreted() -> None:
    text = telemetry(agent={"version": "[bold]x[/]", "release": "r"})
    answered = Outcome(phones(1)[0], Status.OK, 0.1, parse_vitals(text, "", (1000.0, 1000.0)))
    assert any("[bold]x[/]" in line for line in status(evaluate_health(Outcomes((answered,)))))


def test_a_narrow_terminal_shows_fewer_columns() -> None:
    lines = status(rack(4, 2), width=80)
    assert "…" not in "\n".join(lines)
    assert max(map(len, lines)) <= 80
