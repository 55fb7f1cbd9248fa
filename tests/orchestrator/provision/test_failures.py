"""Cause and remedy from real logs of apt and dpkg."""

from __future__ import annotations

import pytest

from orchestrator.provision.failures import FailureExplanation, explain_failure
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.provision.samples import DATA


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [
        ("no-space", "storage is full", "free space"),
        ("unreachable", "cannot reach this computer's package mirror", "Wi-Fi"),
        ("interrupted", "was interrupted", "dpkg --configure -a"),
        ("linker", "partial upgrade", "full-upgrade"),
        ("locked", "another package manager", "pgrep"),
        ("unmet", "conflicting dependencies", "--fix-broken"),
    ],
)
def test_known_failures_have_a_cause_and_a_remedy(log: str, cause: str, remedy: str) -> None:
    found = explain_failure((DATA / f"apt-{log}.txt").read_text())
    assert cause in found.message
    assert remedy in (found.remedy or "")


def test_a_full_disk_is_the_cause_even_if_a_download_failed() -> None:
    log = "E: Failed to fetch http://10.77.0.1/x.deb  Error writing to file - write (28: No space left on device)\n"
    assert explain_failure(log).code is ErrorCode.DISK_FULL


def test_an_unknown_failure_quotes_the_log() -> None:
    assert explain_failure("Reading package lists...\nE: Something new\n") == FailureExplanation(
        ErrorCode.PACKAGE_FAILED, "E: Something new"
    )
    assert explain_failure("") == FailureExplanation(ErrorCode.PACKAGE_FAILED, "no output")
