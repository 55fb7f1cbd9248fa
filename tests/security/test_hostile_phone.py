"""A phone may say anything, for ever, in any shape: it fills no disk, drives no terminal, stops no command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import PhoneError
from orchestrator.fleet import Fleet, PhoneConnection
from orchestrator.fleet.network import DirectNetwork
from orchestrator.health.doctor_facts import parse_doctor_facts
from orchestrator.health.vitals import parse_vitals
from orchestrator.logs.merged_log import read_line
from orchestrator.logs.unpack import Limits, unpack
from orchestrator.paths import ClusterState
from orchestrator.provision.steps.agent import failed_checks
from orchestrator.provision.termux_facts import parse_termux_facts
from orchestrator.records.events import CheckpointEvent, Progress, parse_event
from orchestrator.selftest.query import parse_row, read_result
from orchestrator.text import one_line
from phone_agent.contract.decode import DecodeError
from phone_agent.contract.text import last_lines, lines
from tests.orchestrator.fleet.servers import Server
from tests.orchestrator.launch.samples import event
from tests.orchestrator.logs.tars import END, member
from tests.security.fuzz import fuzzed, tried
from tests.security.mutations import mutated, restructured

READY = (Path(__file__).parents[1] / "orchestrator" / "provision" / "data" / "facts-ready.txt").read_bytes()
STEP = event("step", 1769860800.0, step=3, loss=1.5, images_per_s=100.0, batches=[1, 2], hottest=["p1", 40.0])
CHECKPOINT = json.dumps(
    {"event": "checkpoint", "time": 1.0, "file": "checkpoint-00000007.safetensors", "bytes": 10, "sha256": "0" * 64}
).encode()
TELEMETRY = json.dumps(
    {
        "epoch": 1.0, "temperature_c": 40.0, "battery": {"percentage": 5, "status": "FULL", "plugged": "PLUGGED_AC"},
        "frequency_mhz": 2000, "memory_free_mb": 100, "agent": {"release": "x", "version": "1"}, "cpus_allowed": [0],
        "run": {"id": "r", "state": "running", "step": 3},
    }
).encode()  # fmt: skip
ANSWER = b'{"check": "kernel", "status": "ok", "told": "Linux", "evidence": {"version": "1"}}'
TAR = member(b"rank.log", b"hello") + member(b"events.jsonl", b"{}\n") + END
LIMITS = Limits(files=4, file_bytes=1000, total_bytes=20_000, seconds=5.0)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _event(raw: bytes) -> None:
    parsed = parse_event(raw)
    if parsed:
        Progress(10).update(parsed)


def _checkpoint(raw: bytes) -> None:
    info = parse_event(raw)
    if isinstance(info, CheckpointEvent):
        assert info.name == Path(info.name).name
        assert 0 < info.size <= 1 << 36


def _answer(raw: bytes) -> None:
    with contextlib.suppress(DecodeError):
        read_result(parse_row(raw))


def _facts(raw: bytes) -> None:
    with contextlib.suppress(PhoneError):
        parse_termux_facts(_text(raw))


READERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "events": (_event, STEP),
    "checkpoint events": (_checkpoint, CHECKPOINT),
    "telemetry": (lambda raw: parse_vitals("agent\n" + _text(raw), "", (0.0, 1.0)), TELEMETRY),
    "facts": (_facts, READY),
    "doctor's facts": (lambda raw: parse_doctor_facts(_text(raw), (0.0, 1.0)), READY),
    "selftest": (_answer, ANSWER),
    "agent's complaints": (lambda raw: failed_checks(_text(raw), ""), b'{"ok": false, "checks": []}'),
    "log lines": (read_line, STEP),
}


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@fuzzed(70)
def test_what_it_says_is_survived(kind: str, data: st.DataObject) -> None:
    read, good = READERS[kind]
    said = data.draw(mutated(good) | st.binary(max_size=300))
    tried(f"phone: {kind}")
    read(said)


@pytest.mark.parametrize("kind", [kind for kind, (_, good) in READERS.items() if good.startswith(b"{")])
@given(data=st.data())
@fuzzed(70)
def test_documents_of_any_structure_are_survived(kind: str, data: st.DataObject) -> None:
    read, good = READERS[kind]
    tried(f"phone: {kind}")
    read(data.draw(restructured(good)))


@given(mutated(TAR))
@fuzzed(150)
def test_its_archives_write_nothing_but_plain_files_in_their_folder(
    tmp_path_factory: pytest.TempPathFactory, sent: bytes
) -> None:
    tried("phone: archives")
    root = tmp_path_factory.mktemp("collected")
    (root / "phone").mkdir()
    unpack([sent], root / "phone", LIMITS)
    written = [path for path in root.rglob("*") if path != root / "phone"]
    assert all(path.parent == root / "phone" and path.is_file() and not path.is_symlink() for path in written)
    assert sum(path.stat().st_size for path in written) <= LIMITS.total_bytes
    assert len(written) <= LIMITS.files


@given(st.text(max_size=300))
@fuzzed(200)
def test_nothing_it_says_drives_a_terminal(text: str) -> None:
    tried("phone: terminal")
    assert one_line(text).isprintable()
    assert len(one_line(text, 50)) <= 50
    assert lines(text).replace("\n", "").isprintable()
    assert last_lines(text).replace("\n", "").isprintable()


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
