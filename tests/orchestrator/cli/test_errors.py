from __future__ import annotations

import pytest

from orchestrator.errors import ClusterctlError
from orchestrator.view.console import print_error


def test_escape_sequences_in_an_error_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ClusterctlError("first line\n\x1b]0;retitled\x07 [bold]second", remedy="clusterctl status"))
    shown = capsys.readouterr().err
    assert "\x1b]0" not in shown
    assert "first line\n\\x1b]0;retitled\\x07 [bold]second" in shown
    assert "try: clusterctl status" in shown
