"""Whoever ends chaos, by Ctrl-C or by `kill`, finds its lab gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator.chaos.testbed import Ground
from orchestrator.cli.chaos import chaos


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_its_lab_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    called: list[tuple[str, ...]] = []
    states: list[Path] = []

    def call(ground: Ground, *arguments: str) -> None:
        called.append(arguments[:2])
        states.append(ground.state)
        if arguments[:2] == ("lab", "up"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Ground, "call", call)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        chaos(faults=1, phones=range(4, 5))
    assert called == [("lab", "up"), ("lab", "down")]
    assert signal.getsignal(signal.SIGTERM) == before
    assert not states[0].exists()
