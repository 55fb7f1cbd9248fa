"""Chaos that is ended by Ctrl-C or SIGTERM removes its lab."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator.chaos import testbed as module
from orchestrator.cli.chaos import chaos


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_temporary_lab_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path))
    called: list[tuple[str, ...]] = []
    states: list[Path] = []

    def clusterctl(testbed: module.Testbed, *arguments: str) -> None:
        called.append(arguments[:2])
        states.append(testbed.state)
        if arguments[:2] == ("lab", "up"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(module.Testbed, "clusterctl", clusterctl)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        chaos(faults=1, phones=range(4, 5))
    assert called == [("lab", "up"), ("lab", "down")]
    assert signal.getsignal(signal.SIGTERM) == before
    assert not states[0].exists()
