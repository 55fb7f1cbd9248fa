"""A phone whose agent answers with nonsense, over a real SSH connection: every command ends soon, with a PhoneError."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.chaos import hostile_agent
from orchestrator.errors import ClusterctlError, PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.fleet.network import DirectNetwork
from orchestrator.logs.collect import collect_logs
from orchestrator.paths import ClusterState
from orchestrator.records.checkpoints import find_newest
from orchestrator.supervisor import follow as following
from orchestrator.supervisor.follow import follow
from orchestrator.supervisor.probe import probe_phones, terminate
from orchestrator.tune.device_kinds import query_device_kinds
from phone_agent.contract import layout
from phone_agent.contract.errors import ErrorCode
from tests.orchestrator.fleet.servers import Server
from tests.orchestrator.supervisor.samples import SPEC
from tests.security.boundaries import REPLIES

TRIES = 3  # its answers are random


@pytest.fixture
def fleet(server: Server, state: ClusterState) -> Iterator[Fleet]:
    package = server.home / layout.CURRENT / "phone_agent"
    package.mkdir(parents=True)
    shutil.copy(hostile_agent.__file__, package / "__main__.py")
    with Fleet([server.phone], state, DirectNetwork(), trust_new=True) as fleet:
        yield fleet


def test_replies_are_rejected(fleet: Fleet, tmp_path: Path) -> None:
    connection = fleet.connection(fleet.phones[0])
    for command, (kind, _) in list(REPLIES.items()) * TRIES:
        with pytest.raises(PhoneError, match=f"invalid reply of {connection.phone.name} to {command}") as raised:
            agent.call(connection, kind, command)
        assert raised.value.code is ErrorCode.BAD_ANSWER
    for _ in range(TRIES):
        for probe in (*probe_phones(fleet, "run", fleet.phones), *terminate(fleet, "run", fleet.phones)):
            assert probe.agent_failed
        assert find_newest(fleet, SPEC, tmp_path) is not None or not list(tmp_path.iterdir())
        with pytest.raises(ClusterctlError, match="invalid reply"):
            query_device_kinds(fleet, fleet.phones)
    assert not collect_logs(fleet, "run", tmp_path).complete


def test_a_stream_of_nonsense_is_left(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "INVALID_EVENTS_S", 1.0)

    def connect() -> PhoneConnection:
        return fleet.connection(fleet.phones[0])

    def leave(error: PhoneError) -> None:
        raise error

    with pytest.raises(PhoneError, match="no valid event"):
        list(follow("run", tmp_path / "events.jsonl", connect, leave))
