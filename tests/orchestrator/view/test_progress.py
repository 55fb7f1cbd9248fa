"""Progress lines: on a terminal only, after a delay, with what is being waited for."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.view import progress
from phone_agent.core import build
from tests.orchestrator.launch.samples import phones


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "err", console)
    monkeypatch.setattr(progress, "_DELAY_S", 0.0)
    return file


def test_work_shows_what_and_for_how_long(terminal: io.StringIO) -> None:
    with progress.working("starting the lab") as show:
        time.sleep(0.3)
        show("starting 4 phones")
        time.sleep(0.3)
    assert "starting the lab … 0:00" in terminal.getvalue()
    assert "starting 4 phones … 0:0" in terminal.getvalue()


def test_short_work_shows_nothing(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY_S", 60.0)
    with progress.working("starting the lab"):
        time.sleep(0.3)
    assert "starting" not in terminal.getvalue()


def test_a_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=file))
    monkeypatch.setattr(progress, "_DELAY_S", 0.0)
    with progress.working("starting the lab"):
        time.sleep(0.1)
    assert file.getvalue() == ""


def test_phones_that_have_not_answered_are_named(terminal: io.StringIO) -> None:
    with progress.phone_progress("querying", phones(8)):
        time.sleep(0.3)
    assert "querying 8 phones: 0 done, waiting for p1-01, p1-02, p1-03, p1-04, p1-05, p1-06, …" in terminal.getvalue()


def test_compiling_the_core_is_shown(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The compiler is replaced by a pause: what counts is the line."""

    def compile_slowly(*arguments: str) -> None:
        time.sleep(0.05)
        Path(arguments[-1]).write_bytes(b"")

    monkeypatch.setattr(build, "_zig", compile_slowly)
    with progress.compiling("building the agent bundle"):
        build.build(build.AARCH64_ANDROID, tmp_path)
    assert "compiling the compute core (only once): " in terminal.getvalue()
