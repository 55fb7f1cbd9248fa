"""The live checklist, the printed reports and the prompt of `selftest --interactive`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.inventory.model import Phone
from orchestrator.selftest.assumptions import CLOCK, SESSION, all_assumptions
from orchestrator.selftest.report import AssumptionResult, PhoneReport
from orchestrator.selftest.run import callback_server
from orchestrator.view import selftest as view
from phone_agent.contract.assumptions import Status
from phone_agent.selftest import network

PHONES = [Phone(f"p1-0{port}", "sw1", port, IPv4Address(f"10.77.1.{port}")) for port in (1, 2)]


def drawn(checklist: view.Checklist) -> str:
    console = Console(width=100, height=100, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(checklist.render())
    console.file.close()
    return console.export_text()


def test_the_checklist_shows_running_and_finished_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "err", Console(width=100, height=100))
    checklist = view.Checklist(PHONES, None)
    checklist.show(PHONES[0], AssumptionResult(SESSION, Status.OK, "PATH /bin"))
    checklist.show(PHONES[1], AssumptionResult(SESSION, Status.FAILED, "no PATH"))
    checklist.show(PHONES[0], CLOCK)
    rows = {line.split()[0]: line for line in drawn(checklist).splitlines() if line.strip()}
    assert rows["session"].split()[1:3] == ["✓", "✗"]
    assert rows["clock"].split()[1] == "…"
    assert "allreduce" in rows


def test_a_small_screen_shows_the_unfinished_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "err", Console(width=100, height=12))
    checklist = view.Checklist(PHONES, None)
    assert "session" in drawn(checklist)
    for phone in PHONES:
        for assumption in all_assumptions(2)[:-3]:
            checklist.show(phone, AssumptionResult(assumption, Status.OK, ""))
    shown = drawn(checklist)
    assert "screen-off" in shown
    assert "session" not in shown


def test_reports_are_sanitized(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "out", Console(width=100))
    hostile = AssumptionResult(CLOCK, Status.FAILED, "\x1b]0;owned\x07[red]")
    view.print_reports(
        [PhoneReport(PHONES[0], virtual=False, results=(hostile,), error="lost\x1b[2J")], [Path("f.json")]
    )
    shown = capsys.readouterr().out
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown
    assert "[red]" in shown


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    with callback_server(socket.create_server(("127.0.0.1", 0))) as address:
        yield address


def test_the_callback_server_reports_the_address_of_the_phone() -> None:
    with serving() as address:
        disconnected = socket.create_connection(address)
        disconnected.close()  # another client must not stop the server
        found = network.outbound(*address)()
    assert (found.status, found.evidence) == (Status.OK, {"own": "127.0.0.1", "seen": "127.0.0.1"})


def test_the_prompt_waits_for_enter(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    waited: list[bool] = []

    def read() -> str:
        waited.append(True)
        return ""

    monkeypatch.setattr("builtins.input", read)
    view.Checklist(PHONES, None).prompt("Switch the screen off")
    assert waited == [True]
    assert "Switch the screen off" in capsys.readouterr().err
