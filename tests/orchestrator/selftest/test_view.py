"""The checklist while phones answer, and a run with somebody at the keyboard."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import CLOCK, SESSION, all_beliefs
from orchestrator.selftest.callback_server import doorbell
from orchestrator.selftest.report import Answer, PhoneReport
from orchestrator.view import selftest as view
from phone_agent.contract.assumptions import Status
from phone_agent.selftest import network

PHONES = [Phone(f"p1-0{port}", "sw1", port, IPv4Address(f"10.77.1.{port}")) for port in (1, 2)]


def drawn(checklist: view.Checklist) -> str:
    console = Console(width=100, height=100, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(checklist.render())
    console.file.close()
    return console.export_text()


def test_the_list_shows_what_is_open_and_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "err", Console(width=100, height=100))
    checklist = view.Checklist(PHONES, None)
    checklist.show(PHONES[0], Answer(SESSION, Status.OK, "PATH /bin"))
    checklist.show(PHONES[1], Answer(SESSION, Status.FAILED, "no PATH"))
    checklist.show(PHONES[0], CLOCK)
    rows = {line.split()[0]: line for line in drawn(checklist).splitlines() if line.strip()}
    assert rows["session"].split()[1:3] == ["✓", "✗"]
    assert rows["clock"].split()[1] == "…"
    assert "mpirun-together" in rows


def test_a_small_screen_shows_the_part_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "err", Console(width=100, height=12))
    checklist = view.Checklist(PHONES, None)
    assert "session" in drawn(checklist)
    for phone in PHONES:
        for belief in all_beliefs(2)[:-3]:
            checklist.show(phone, Answer(belief, Status.OK, ""))
    shown = drawn(checklist)
    assert "screen-off" in shown
    assert "session" not in shown


def test_reports_are_harmless_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "out", Console(width=100))
    hostile = Answer(CLOCK, Status.FAILED, "\x1b]0;owned\x07[red]")
    view.print_reports(
        [PhoneReport(PHONES[0], virtual=False, answers=(hostile,), error="lost\x1b[2J")], [Path("f.json")]
    )
    shown = capsys.readouterr().out
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown
    assert "[red]" in shown


@contextmanager
def listening() -> Iterator[tuple[str, int]]:
    with doorbell(socket.create_server(("127.0.0.1", 0))) as bell:
        yield bell


def test_a_phone_that_calls_is_told_who_it_is() -> None:
    with listening() as bell:
        hung_up = socket.create_connection(bell)
        hung_up.close()  # somebody else's call must not end it
        found = network.calls_out(*bell)()
    assert (found.status, found.evidence) == (Status.OK, {"own": "127.0.0.1", "seen": "127.0.0.1"})


def test_a_person_is_asked_and_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    waited: list[bool] = []

    def read() -> str:
        waited.append(True)
        return ""

    monkeypatch.setattr("builtins.input", read)
    view.Checklist(PHONES, None).ask("Switch the screen off")
    assert waited == [True]
    assert "Switch the screen off" in capsys.readouterr().err
