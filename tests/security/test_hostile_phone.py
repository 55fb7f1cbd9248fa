"""A hostile phone can only lie: nothing that it sends crashes, blocks, fills or draws on this computer.

tests/security/test_fuzz.py covers everything that it sends with generated inputs; here are the known attacks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, PhoneConnection, agent
from orchestrator.fleet.network import DirectNetwork
from orchestrator.paths import ClusterState
from orchestrator.records.checkpoints import find_newest
from orchestrator.records.events import Progress, parse_event
from orchestrator.supervisor.probe import probe_phones
from orchestrator.view.run_format import format_step
from orchestrator.view.run_summary import _communication
from phone_agent.contract.errors import ErrorCode
from phone_agent.contract.replies import Checkpoints, RunProbe
from tests.orchestrator.fleet.servers import Server
from tests.orchestrator.launch.samples import event
from tests.orchestrator.supervisor.samples import FOUR, SPEC
from tests.security.boundaries import EVENTS, read_views
from tests.security.hostile import HostileFleet, HostilePhone


def progress_of(*lines: bytes | str) -> Progress:
    progress = Progress(10)
    for parsed in map(parse_event, lines):
        assert parsed is not None
        progress.update(parsed)
    return progress


@pytest.mark.parametrize(
    "lie",
    [
        {"step_s": 1.7e308},
        {"loss": 1.7e308},
        {"loss": -1.7e308},
        {"images_per_s": 1.7e308},
        {"hottest": {"phone": "p1", "temperature_c": 1e300}},
        {"step": 99_999_999},
    ],
)
def test_huge_numbers_do_not_crash_the_views(lie: dict[str, Any], tmp_path: Path) -> None:
    good = {"step": 2, "loss": 1.0, "step_s": 0.5, "compute_s": 0.4}
    lies = event("step", 1002.0, **{**good, **lie}) + event("step", 1003.0, **{**good, "step": 3, **lie})
    read_views(EVENTS.replace(b"\n", b"\n" + lies, 3), tmp_path)


@pytest.mark.parametrize("loss", [1.7e308, -1.7e308, float("nan")])
def test_a_loss_beyond_all_bounds_is_shown_as_diverged(loss: float) -> None:
    progress = progress_of(json.dumps({"event": "step", "step": 3, "loss": loss}))
    assert "loss diverged" in format_step(progress)


def test_a_step_beyond_the_plan_is_ignored() -> None:
    assert progress_of(event("step", 1.0, step=3), event("step", 2.0, step=99_999_999)).step == 3


def test_escape_sequences_in_a_communication_plan_do_not_reach_the_terminal() -> None:
    plan = {"algorithm": "ring", "wire": "fp32", "bucket_bytes": 1, "limit_s": 0.1, "group": "\x1b[2J"}
    assert parse_event(event("comm_plan", 1.0, **plan)) is None
    done = event("done", 2.0, exposed_comm_fraction=0.1)
    shown = _communication(progress_of(event("comm_plan", 1.0, **{**plan, "group": 2}), done))
    assert shown == "allreduce: ring in groups of 2, fp32; 10.0% of step time spent waiting"


def test_a_phone_cannot_report_an_incident() -> None:
    assert parse_event(event("incident", 1.0, message="resumed at step 3")) is None


@pytest.mark.parametrize("reply", [b'{"damaged": 1}', b'{"newest": "x", "damaged": []}', b"[]", b"{", b'"x"'])
def test_nonsense_about_checkpoints_does_not_end_a_recovery(reply: bytes, tmp_path: Path) -> None:
    fleet: Any = HostileFleet(FOUR, lambda phone: HostilePhone(phone, [reply]))
    find_newest(fleet, SPEC, tmp_path)
    with pytest.raises(PhoneError, match="invalid reply of p1-01 to checkpoints") as raised:
        agent.call(HostilePhone(FOUR[0], [reply]), Checkpoints, "checkpoints")
    assert raised.value.code is ErrorCode.BAD_ANSWER


def test_the_error_names_the_phone_the_command_and_the_field() -> None:
    reply = json.dumps({"held_steps": [[0, 3], [0, "many"]]}).encode()
    with pytest.raises(PhoneError) as raised:
        agent.call(HostilePhone(FOUR[0], [reply]), RunProbe, "probe")
    place, expected = "held_steps[1][1]", "expected an integer from 0 to 1000000000, not 'many'"
    assert raised.value.message == f"invalid reply of p1-01 to probe: {place}: {expected}"
    fleet: Any = HostileFleet(FOUR, lambda phone: HostilePhone(phone, [reply]))
    assert all(probe.agent_failed for probe in probe_phones(fleet, "run", FOUR))


@pytest.fixture
def phone(server: Server, state: ClusterState) -> Any:
    with Fleet([server.phone], state, DirectNetwork(), trust_new=True) as fleet:
        yield fleet.connection(server.phone)


def test_an_endless_answer_is_cut_off(phone: PhoneConnection) -> None:
    with pytest.raises(PhoneError, match="bytes of output"):
        phone.run(["bash", "-c", "yes endless"], timeout=60)


def test_an_endless_line_is_cut_off(phone: PhoneConnection) -> None:
    endless = ["bash", "-c", "yes | tr -d '\\n'"]
    with phone.open_stream(endless, silence=30, timeout=60) as stream, pytest.raises(PhoneError, match="longer than"):
        list(stream)


def test_silence_is_not_waited_for(phone: PhoneConnection) -> None:
    with (
        phone.open_stream(["sleep", "1000"], silence=0.5, timeout=60) as stream,
        pytest.raises(PhoneError, match="no output"),
    ):
        list(stream)


def test_a_file_larger_than_asked_for_is_not_taken(phone: PhoneConnection, server: Server) -> None:
    from pathlib import PurePosixPath

    (server.home / "big").write_bytes(bytes(5000))
    with pytest.raises(PhoneError, match="bytes of output"):
        phone.get(PurePosixPath("big"), limit=1000)
