"""New sshd settings are kept only if a new login works. The phone is simulated."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet.result import CommandResult
from orchestrator.provision.desired_state import SshTarget
from orchestrator.provision.resources import read_script
from orchestrator.provision.steps.sshd import SshdStep
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.provision.samples import desired_state, facts, phone


class Connection:
    def __init__(self, rc: int = 0) -> None:
        self.rc = rc
        self.restored: list[str] = []

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), self.rc, "", "line 3: Bad configuration option", 0.1)

    def script(self, text: str, *args: str) -> None:
        assert text == read_script("sshd-restore")
        self.restored += args


def set_up(connection: Connection, logins: list[PhoneError | None]) -> None:
    def log_in() -> None:
        if error := logins.pop(0):
            raise error

    target = SshTarget(phone(), lambda: connection, log_in)  # type: ignore[arg-type,return-value]
    SshdStep().apply(target, facts(sshd_pid=77), desired_state())


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_a_login_is_retried() -> None:
    connection = Connection()
    set_up(connection, [PhoneError("refused", code=ErrorCode.CONNECTION_REFUSED), None])
    assert connection.restored == []


def test_a_failed_login_restores_the_old_settings() -> None:
    connection = Connection()
    with pytest.raises(PhoneError, match="restored the old ones: refused"):
        set_up(connection, [PhoneError("refused", code=ErrorCode.CONNECTION_REFUSED)] * 5)
    assert connection.restored == ["77"]


def test_settings_that_sshd_rejects_are_reported() -> None:
    with pytest.raises(PhoneError, match="rejects the settings: line 3"):
        set_up(Connection(rc=3), [])


def test_nothing_changes_if_the_sshd_process_is_unknown() -> None:
    with pytest.raises(PhoneError, match="process id of sshd"):
        SshdStep().apply(SshTarget(phone(), lambda: pytest.fail("touched"), lambda: None), facts(), desired_state())
